"""All rules, and the mutants that they make of the package's modules."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from mutants import orders, sites, weakened
from mutants.acts import Acts
from mutants.syntax import Mutant, Rule, edited, functions


def rules(acts: Acts) -> tuple[Rule, ...]:
    """Each makes changes of a function, one mutant each."""
    order, decisions = orders.Orders(acts), weakened.Decisions(acts)
    return (
        sites.flushes_left_out,
        order.later,
        order.earlier,
        order.looks,
        weakened.swallowed,
        weakened.tried_again,
        weakened.unlocked,
        weakened.flags,
        weakened.steps,
        decisions.links,
        decisions.guards,
        decisions.operands,
    )


def made_by_rules(checkout: Path, modules: Sequence[str]) -> Iterator[Mutant]:
    """What the rules make of all functions of these modules."""
    sources = {module: (checkout / module).read_text() for module in modules}
    acts = Acts({module: ast.parse(source) for module, source in sources.items()})
    for module, source in sources.items():
        yield from _of_module(module, source, rules(acts))


def _of_module(module: str, source: str, chosen: Sequence[Rule]) -> Iterator[Mutant]:
    named: Counter[str] = Counter()
    made = {source}
    for function in functions(module, source):
        place = f"{module} {function.name}".strip()
        for change in (change for rule in chosen for change in rule(function)):
            changed = edited(source, change.edits)
            if changed in made:
                continue  # Two rules make the same of it.
            made.add(changed)
            name = f"{place}: {change.what}"
            named[name] += 1
            again = f" ({named[name]})" if named[name] > 1 else ""
            yield Mutant(name + again, module, changed, function.name)
