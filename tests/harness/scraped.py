"""A scrape, as numbers by name and labels."""

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as families_of_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from harness.processes import PATIENCE_S
from harness.server import Server

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True)
class Scraped:
    """What a page says."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]
    families: frozenset[str]
    """Their names, those of counters without what samples have at the end."""

    @classmethod
    def of(cls, text: str, as_openmetrics: bool = False) -> "Scraped":
        parse = families_of_openmetrics if as_openmetrics else text_string_to_metric_families
        found = list(parse(text))
        return cls(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in found
                for sample in family.samples
            },
            frozenset(family.name for family in found),
        )

    def __call__(self, name: str, **labels: str) -> float:
        """The sample's value; 0 where there is none, as it is with what never was."""
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def sum(self, name: str) -> float:
        """Of all samples of the name."""
        return sum(value for (found, _), value in self.samples.items() if found == name)

    def labels(self, name: str, label: str) -> set[str]:
        """The label's values in all samples of the name."""
        return {dict(labels)[label] for found, labels in self.samples if found == name}

    def names(self) -> set[str]:
        """Of all samples."""
        return {name for name, _ in self.samples}


async def scrape(server: Server) -> Scraped:
    async with server.request("GET", "/-/metrics") as response:
        assert response.status == 200
        return Scraped.of(await response.text())


def scrape_url(url: str) -> Scraped:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        return Scraped.of(response.read().decode())
