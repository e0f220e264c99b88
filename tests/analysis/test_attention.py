"""Rank and sparsity of attention matrices: their values, the table, the plot, and refusals."""

from argparse import Namespace

import pytest
import torch
from support.helpers import VOCABULARY, build
from support.lists import rows_of

from fairseq_posenc.analysis import attention as analysis
from fairseq_posenc.attention import gated
from fairseq_posenc.attention import softmax as softmax_attention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import main
from tests.analysis.test_positions import masked_lm_file, save, translation_file

pytestmark = pytest.mark.formulas
GAU = ("--layer", "gated", "--gau-key-size", "8", "--gau-normaliser", "softmax")


@pytest.fixture
def folder(tmp_path):
    """A folder with a dictionary, 40 lines of text, and nothing else yet."""
    VOCABULARY.save(str(tmp_path / "dict.txt"))
    lines = [" ".join(f"w{(7 * i + j * j) % 60}" for j in range(i % 9)) for i in range(40)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    return tmp_path


def loaded(path, text, length=12, count=2):
    model = analysis.load(path, None)
    return model, analysis.pack(str(text), model, length, count)


def test_sparsity_counts_entries_against_their_row():
    matrix = torch.tensor(
        [[1.0, -0.5, 0.009, 0.0], [1e-4, 2e-4, -2e-4, 1e-9], [0.0] * 4, [3.0] * 4]
    )
    both = torch.stack((matrix, torch.eye(4)))
    assert analysis.sparsity(both, 0.01).tolist() == [(2 + 1 + 4 + 0) / 16, 12 / 16]
    assert analysis.sparsity(matrix, 0.0).item() == 5 / 16


def test_figures_are_means_over_heads_and_sequences(folder):
    model, tokens = loaded(masked_lm_file(folder, "rotary")[1], folder / "text")
    figures = analysis.analyse(model, tokens, 1e-2, 1e-2)
    for layer, found in enumerate(analysis.matrices(model, tokens)):
        for kind, matrix in enumerate(found):
            singular = torch.linalg.svdvals(matrix)  # (2, 4, 12)
            ranks = (singular > 1e-2 * singular[..., :1]).sum(dim=-1)
            want = ranks.double().mean().item() / 12
            assert figures.rank[layer, kind].item() == pytest.approx(want)
            rows = [row.abs() for row in matrix.reshape(-1, 12)]
            want = sum(int((row <= 1e-2 * row.max()).sum()) for row in rows) / matrix.numel()
            assert figures.sparsity[layer, kind].item() == pytest.approx(want)


@pytest.mark.parametrize(
    "make, encoding, flags",
    [
        (translation_file, "rotary", ["--encoder-normalize-before"]),
        (masked_lm_file, "learned+tupe+t5", []),
        (translation_file, "shaw+rotary", GAU),
        (masked_lm_file, "shaw+bert_ad", ["--kv-heads", "4"]),
        (masked_lm_file, "shaw", ["--kv-heads", "2"]),
    ],
)
def test_they_are_of_what_the_layers_attend_with(make, encoding, flags, folder, monkeypatch):
    _, path = make(folder, encoding, *flags)
    model, tokens = loaded(path, folder / "text")
    found = list(analysis.matrices(model, tokens))
    seen = []

    def attend(q, k, v, scale, bias, *rest):
        keys = k.double().repeat_interleave(q.size(1) // k.size(1), dim=1)
        seen.append((q.double(), keys, scale, 0.0 if bias is None else bias))
        return real(q, k, v, scale, bias, *rest)

    real = softmax_attention.attend
    monkeypatch.setattr(gated if "gated" in flags else softmax_attention, "attend", attend)
    with torch.no_grad():
        model.run(tokens)
    assert len(found) == len(seen) == 2
    for (products, softmax, squared), (q, k, scale, bias) in zip(found, seen):
        dots = torch.einsum("bhid,bhjd->bhij", q, k)
        torch.testing.assert_close(products, dots)
        logits = scale * dots + bias
        exps = logits.exp()
        torch.testing.assert_close(softmax, exps / exps.sum(-1, keepdim=True))
        torch.testing.assert_close(squared, logits.clamp(min=0) ** 2)


def test_hidden_keys_count_as_zeros(folder):
    model, tokens = loaded(masked_lm_file(folder, "t5", "--causal")[1], folder / "text")
    later = torch.ones(12, 12, dtype=torch.bool).triu(1)
    for products, softmax, squared in analysis.matrices(model, tokens):
        assert (products[..., later] != 0).all()
        assert (softmax[..., later] == 0).all() and (squared[..., later] == 0).all()
    assert not any(module._forward_pre_hooks for module in model.encoder.modules())


def test_sequences_are_cut_from_the_lines(folder):
    (folder / "text").write_text("w0 w1 w2\n\nw3 odd\nw4 w5\nw6\n")
    eos, unk, w = VOCABULARY.eos(), VOCABULARY.unk(), VOCABULARY.index("w0")
    stream = [w, w + 1, w + 2, eos, eos, w + 3, unk, eos, w + 4, w + 5, eos, w + 6, eos]
    _, tokens = loaded(masked_lm_file(folder, "rotary")[1], folder / "text", 5, 9)
    bos = VOCABULARY.bos()
    assert tokens.tolist() == [[bos, *stream[i : i + 4]] for i in (0, 4, 8)]
    _, tokens = loaded(translation_file(folder, "rotary")[1], folder / "text", 5, 1)
    assert tokens.tolist() == [stream[:5]]


@pytest.mark.parametrize(
    "make, name, source",
    [
        (masked_lm_file, "dict.txt", None),
        (masked_lm_file, "input0/dict.txt", None),  # with --task sentence_prediction
        (translation_file, "dict.xx.txt", "xx"),
        (translation_file, "dict.yy.txt", None),
    ],
)
def test_the_dictionary_is_found_in_the_data(make, name, source, folder):
    _, path = make(folder, "rotary")
    (folder / "data" / name).parent.mkdir(parents=True)
    if make is translation_file:
        (folder / "data" / "train.yy-zz.yy.idx").touch()
    (folder / "dict.txt").rename(folder / "data" / name)
    with pytest.raises(UsageError, match=r"checkpoint.pt: found no dictionary .*--dict"):
        analysis.load(path, None)
    state = torch.load(path, weights_only=True)
    state["cfg"]["task"] = {"data": str(folder / "data"), "source_lang": source}
    torch.save(state, path)
    assert analysis.load(path, None).dictionary == VOCABULARY


def test_a_table_and_a_picture(folder, capsys):
    pytest.importorskip("matplotlib")
    _, path = masked_lm_file(folder, "rotary", *GAU)
    before = sorted(p.name for p in folder.iterdir())
    arguments = [path, str(folder / "text"), "--length", "16", "--sequences", "3"]
    main(["analyse", *arguments, "--output", str(folder / "out.png")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sequences: 3, tokens in each: 16, unknown: 0.0%; heads per layer: ")
    rows = {line.split()[0]: line.split()[1:] for line in lines[-3:]}
    assert list(rows) == ["1", "2", "mean"]
    model, tokens = loaded(path, folder / "text", 16, 3)
    figures = analysis.analyse(model, tokens, 16 * 2**-23, 1e-3)
    for number, name in enumerate("12"):
        want = [f"{x:.4f}" for x in figures.rank[number].tolist()]
        assert rows[name] == want + [f"{x:.2%}" for x in figures.sparsity[number].tolist()]
        assert rows[name][0] == "0.5000"  # rank 8 (channels) of 16 (tokens)
    assert float(rows["mean"][1]) == pytest.approx(figures.rank[:, 1].mean().item(), abs=1e-4)
    image = (folder / "out.png").read_bytes()
    assert image.startswith(b"\x89PNG") and len(image) > 5000
    assert sorted(p.name for p in folder.iterdir()) == sorted([*before, "out.png"])


@pytest.mark.parametrize(
    "encoding, flags, words",
    [
        ("learned", ["--length", "65"], "--length 65: the table has 64 positions"),
        ("rotary", ["--length", "1"], "--length 1: must be at least 2"),
        ("rotary", ["--length", "4096"], r"text: has \d+ tokens, .* needs 4095; give more text"),
        ("rotary", ["--sequences", "0"], "--sequences 0"),
        ("rotary", ["--tolerance", "1"], "--tolerance 1.0: must be at least 0 and below 1"),
        ("rotary", ["--threshold", "-0.5"], "--threshold -0.5: must be at least 0 and below 1"),
        ("rotary", ["--dict", "nowhere/dict.txt"], "nowhere/dict.txt: cannot be read"),
        ("rotary", ["--dict", "{}/small"], "small: has 5 symbols.* 64 token embeddings"),
        ("rotary", ["--dict", "{}/other"], "text: .*% of its tokens are not in the dictionary"),
        ("rotary", ["--output", "{}/no/out.png"], "--output .*out.png: there is no folder"),
    ],
)
def test_what_cannot_be_analysed_is_named(encoding, flags, words, folder):
    _, path = masked_lm_file(folder, encoding)
    (folder / "small").write_text("w0 1\n")
    (folder / "other").write_text("".join(f"x{i} 1\n" for i in range(60)))
    flags = [flag.format(folder) for flag in flags]
    with pytest.raises(UsageError, match=words):
        main(["analyse", path, str(folder / "text"), "--length", "16", *flags])
    assert not list(folder.rglob("*.p*g*"))


def test_files_that_are_none_of_ours(folder):
    _, path = masked_lm_file(folder, "rotary")
    state = torch.load(path, weights_only=True)
    state["model"] = {f"models.de-en.{k}": v for k, v in state["model"].items()}
    torch.save(state, folder / "other.pt")
    (folder / "stock").mkdir()
    model = build("transformer", "--encoder-layers", "1")
    stock = save(model, Namespace(arch="x"), folder / "stock")
    for model, text, words in (
        (folder / "other.pt", "text", "has no single encoder .*models.de-en"),
        (stock, "text", "not trained with this plug-in"),
        (path, "nothing", "nothing: cannot be read "),
    ):
        with pytest.raises(UsageError, match=words):
            main(["analyse", str(model), str(folder / text)])


@pytest.mark.parametrize("flags, words", rows_of("no_matrix.txt"))  # from the packs
def test_layers_without_one_matrix_are_named(flags, words, folder):
    _, path = masked_lm_file(folder, "rotary", *flags.split())
    with pytest.raises(UsageError, match=words):
        main(["analyse", path, str(folder / "text")])
