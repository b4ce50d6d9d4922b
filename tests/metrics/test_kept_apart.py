"""Prometheus's library is used where samples are made, and nowhere on a message's way."""

from test_floors import MODULES, imports, packages


def test_prometheus_is_known_to_what_makes_samples_alone() -> None:
    using = {module for module in MODULES if "prometheus_client" in packages(module)}
    assert using == {
        "mq.metrics.disk",
        "mq.metrics.families",
        "mq.metrics.scrape",
        "mq.metrics.serving",
        "mq.metrics.told",
    }


def test_the_broker_and_what_stands_beside_it_know_nothing_of_metrics() -> None:
    for module in MODULES:
        if module.startswith(("mq.broker", "mq.coordination", "mq.shovels")):
            assert not [each for each in imports(module) if each.startswith("mq.metrics")], module
