"""Queues, their settings, and the service, as mqctl shows and changes them."""

from typing import Any

import pytest
from harness.mqctl import Mqctl
from harness.processes import eventually


@pytest.mark.certificate
def test_a_queue_is_made_once_and_listed(mqctl: Mqctl) -> None:
    assert mqctl("create", "made").text == "created made\n"
    assert mqctl("create", "made").text == "made exists already\n"
    assert "made" in mqctl("queues").lines
    assert {"name": "made", "sideline": False} in mqctl("queues", "--json").json["queues"]


def test_a_description_counts_what_lies_there(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "one", "two")
    assert "ready\t2" in mqctl("describe", queue).lines
    assert mqctl("--json", "describe", queue).json["ready"] == 2
    assert [queue, "2", "0", "0", "0"] in [
        line.split("\t") for line in mqctl("queues", "--counts").lines
    ]


def test_deleting_asks_somebody_or_is_refused(mqctl: Mqctl, queue: str) -> None:
    refused = mqctl("delete", queue)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert mqctl("delete", queue, "--yes").code == 0
    assert mqctl("describe", queue).code == 3


@pytest.mark.certificate
def test_a_purge_takes_what_is_there(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "old")
    assert mqctl("purge", queue).code == 2
    assert "purged_before" in mqctl("purge", queue, "--yes", "--json").json
    assert mqctl("receive", queue).code == 3


def test_consumers_are_listed_and_one_is_ended(mqctl: Mqctl, queue: str) -> None:
    receiving = mqctl.begin("receive", queue, "--follow", "--ack")

    def consumers() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = mqctl("consumers", queue, "--json").json["consumers"]
        return found

    [row] = eventually(consumers, "a consumer")
    assert row["id"] in mqctl("consumers", queue).text
    assert mqctl("consumers", queue, "--end", row["id"]).text == f"ended {row['id']}\n"
    assert receiving.wait() != 0
    assert mqctl("consumers", queue, "--end", row["id"]).code == 3


def test_settings_are_shown_as_they_can_be_said(mqctl: Mqctl, queue: str) -> None:
    shown = dict(line.split("\t") for line in mqctl("settings", queue).lines)
    assert shown["history"] == "false"
    assert shown["expires_at"] == "null"
    changed = mqctl("settings", queue, "visibility_s=90", "history=true", "--json")
    assert changed.json["settings"]["visibility_s"] == 90
    assert changed.json["settings"]["history"] is True
    back = mqctl("settings", queue, "visibility_s=null", "expired_to=sideline", "--json")
    assert back.json["settings"]["visibility_s"] == 30
    assert back.json["settings"]["expired_to"] == "sideline"


def test_settings_that_others_changed_are_left_alone(mqctl: Mqctl, queue: str) -> None:
    etag = mqctl("settings", queue, "--json").json["etag"]
    assert mqctl("settings", queue, "visibility_s=60", "--if-match", etag.strip('"')).code == 0
    late = mqctl("settings", queue, "visibility_s=70", "--if-match", etag)
    assert late.code == 1
    assert "settings-changed" in late.err
    assert mqctl("settings", queue, "--if-match", etag).code == 2


def test_a_setting_that_cannot_be_is_a_problem_with_its_name(mqctl: Mqctl, queue: str) -> None:
    refused = mqctl("settings", queue, "visibility_s=-1", "--json")
    assert refused.code == 1
    assert refused.error["problem"]["parameter"] == "visibility_s"


def test_the_service_says_how_it_is(mqctl: Mqctl) -> None:
    assert mqctl("ready", "--json").json["durability"]
    assert "queues" in mqctl("refresh", "--json").json
    members = mqctl("members", "--json", "--queue", "nobodys").json
    assert members["assigned"] == {"nobodys": None}


def test_a_queue_that_is_not_there_brings_those_that_are_near(mqctl: Mqctl) -> None:
    mqctl("create", "payments")
    missing = mqctl("describe", "paymens")
    assert missing.code == 3
    assert missing.err == "Error: There is no queue paymens. Did you mean payments?\n"
    assert mqctl("describe", "paymens", "--json").error["problem"]["status"] == 404
    far = mqctl("describe", "zzz-zzz")
    assert "mqctl create zzz-zzz" in far.err


def test_a_name_that_is_none_is_never_sent(mqctl: Mqctl) -> None:
    refused = mqctl("--url", "http://127.0.0.1:1", "describe", "../etc")
    assert refused.code == 2
    assert "is not a queue name" in refused.err
