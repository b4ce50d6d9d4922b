"""What the gate finds in a module's syntax."""

from pathlib import Path

from mutants.gate import mutants
from mutants.sites import left_out

MODULE = """
def publish(files, fd) -> Steps[None]:
    yield Flush(files=(fd,), folders=("queue", "new"))
    yield later

def seal(files, fd) -> None:
    if files.sync(fd) is None:
        return
"""


def test_each_flush_each_part_and_each_order_is_one_mutant(tmp_path: Path) -> None:
    (tmp_path / "publish.py").write_text(MODULE)
    made = {mutant.name: mutant for mutant in left_out(tmp_path, ["publish.py"])}
    whole = "Flush(files=(fd,), folders=('queue', 'new'))"
    assert sorted(made) == sorted(
        [
            f"publish.py publish: flush nothing for {whole}",
            f"publish.py publish: flush no files of {whole}",
            f"publish.py publish: flush no folders of {whole}",
            "publish.py publish: flush not 'queue'",
            "publish.py publish: flush not 'new'",
            "publish.py publish: flush the folders the other way round",
            "publish.py publish: flush nothing for later",
            "publish.py seal: leave out files.sync(fd)",
        ]
    )
    assert "if 0 is None:" in made["publish.py seal: leave out files.sync(fd)"].source
    turned = made["publish.py publish: flush the folders the other way round"].source
    assert """folders=('new', 'queue', ))""" in turned


def test_every_mutant_of_the_package_is_one_of_its_own_and_compiles() -> None:
    made = mutants()
    assert len({mutant.source for mutant in made}) == len({mutant.name for mutant in made})
    for mutant in made:
        compile(mutant.source, mutant.module, "exec")
