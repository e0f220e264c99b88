"""Plans whose systems are to have the same size."""

import pytest
from support.studies import CPU, message

from fairseq_posenc.study.checks import check_plan, count_parameters, match_parameters

pytest_plugins = ["support.studies"]

C, F, LAYERS, POSITIONS = 32, 128, 2, 64
BASE = {
    "--arch": "posenc_transformer", "--optimizer": "adam", "--max-tokens": 100,
    "--share-decoder-input-output-embed": True,
    "--max-source-positions": POSITIONS, "--max-target-positions": POSITIONS,
    **{f"--{side}-layers": LAYERS for side in ("encoder", "decoder")},
    **{f"--{side}-embed-dim": C for side in ("encoder", "decoder")},
    **{f"--{side}-ffn-embed-dim": F for side in ("encoder", "decoder")},
    **{f"--{side}-attention-heads": 2 for side in ("encoder", "decoder")},
}  # fmt: skip
ROTARY = {"--position-encoding": "rotary"}
LEARNED = {"--position-encoding": "learned"}


def test_the_feed_forward_layers_take_up_a_table_of_positions(read):
    plan = read(
        base=BASE,
        systems={"rotary": ROTARY, "learned": LEARNED, "stock": {"--arch": "transformer"}},
        match="parameters",
    )
    check_plan(plan, CPU)
    matched = match_parameters(plan)
    assert matched.systems["rotary"] == ROTARY
    assert matched.systems["stock"] == {"--arch": "transformer"}  # sinusoids have no parameters
    # fairseq's table has a row more than the padding symbol for either side
    table, channel = 2 * (POSITIONS + 2) * C, 2 * LAYERS * (2 * C + 1)
    size = F - 8 * round(table / channel / 8)
    sizes = {f"--{side}-ffn-embed-dim": str(size) for side in ("encoder", "decoder")}
    assert matched.systems["learned"] == {**LEARNED, **sizes} and size < F
    before, after = (count_parameters(one, "learned", {}) for one in (plan, matched))
    assert before - after == channel * (F - size)
    wanted = count_parameters(plan, "rotary", {})
    assert before - wanted == table and abs(after - wanted) <= 0.01 * wanted


@pytest.mark.parametrize(
    "systems, said",
    [
        ({"rotary": ROTARY, "gau": {"--arch": "gau_tiny"}}, "gau: has no feed-forward layers"),
        ({"rotary": ROTARY, "wide": {**LEARNED, "--max-source-positions": 99_999}}, "wide: has 3,"),
    ],
)
def test_what_cannot_be_matched_is_refused(systems, said, read):
    plan = read(base=BASE, systems=systems, match="parameters")
    if "gau" in systems:
        dropped = [flag for flag in BASE if "ffn" in flag or "heads" in flag]
        systems["gau"].update(dict.fromkeys(dropped, False))
        plan = read(base=BASE, systems=systems, match="parameters")
    assert f"match: parameters: {said}" in message(match_parameters, plan)
