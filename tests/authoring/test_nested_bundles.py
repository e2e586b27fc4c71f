"""Bundles in bundles: their names, their depth, and the processes that serve them."""

from pathlib import Path

from tests.authoring.composing import CALC, call, composed, done


def test_bundles_hold_bundles_eight_deep(folder: Path) -> None:
    made = composed(folder, folder / "calc.py", name="d0.portico")
    for depth in range(1, 9):
        made = composed(folder, made, name=f"d{depth}.portico")
    assert call(folder, made, "add", a=1, b=2) == "3"
    said = done(folder, "compose", made, "-o", folder / "d9.portico", code=1)
    assert "it holds bundles more than 8 deep" in said
    assert not (folder / "d9.portico").exists()


def test_an_inner_server_keeps_its_own_names_and_links(folder: Path) -> None:
    composed(folder, folder / "guard.py", folder / "calc.py", name="inner.portico")
    other = folder / "other.py"
    other.write_text(CALC.replace("add(", "plus("))
    bundle = composed(folder, "maths=" + str(folder / "inner.portico"), other, "--prefix")
    assert call(folder, bundle, "maths__add", a=2, b=1) == "42"
    assert call(folder, bundle, "other__plus", a=2, b=1) == "3"
    shown = done(folder, "inspect", bundle, "--verify")
    assert "every byte verified" in shown
    assert "maths/guard, maths/calc" in shown or "other, maths/guard, maths/calc" in shown
