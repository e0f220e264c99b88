"""Rotary position embedding against its definition and against other implementations."""

import pytest
import torch
from support.formulas import rotation_matrix
from support.helpers import sentences, tiny
from support.parts import encoding_of

from fairseq_posenc.attention import Batch
from fairseq_posenc.encodings.rotary import Rotary


def rotary(head_dim=16, **flags):
    return encoding_of("rotary", heads=3, head_dim=head_dim, **flags).transform


def rotated(x, positions, **flags):
    """Rotate x (B, H, T, D) at positions (1|B, T); the package works on (B, T, H, D)."""
    rotation = rotary(x.size(-1), **flags)
    table = rotation.table(positions)
    return rotation.rotate(x.transpose(1, 2), table).transpose(1, 2)


@pytest.mark.parametrize("pairing", ["interleaved", "half"])
@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_equals_the_rotation_matrix_of_equation_7(pairing, base):
    x = torch.randn(2, 3, 5, 16)
    positions = torch.tensor([[0, 1, 7, 100, 4095]])
    got = rotated(x, positions, rotary_pairing=pairing, rotary_base=base)
    for t, m in enumerate(positions[0].tolist()):
        want = x[:, :, t].double() @ rotation_matrix(m, 16, base, pairing).t()
        torch.testing.assert_close(got[:, :, t].double(), want, atol=1e-6, rtol=1e-6)


def test_fraction_rotates_the_leading_channels_only():
    x = torch.randn(1, 1, 3, 16)
    got = rotated(x, torch.tensor([[3, 4, 5]]), rotary_fraction=0.5)
    assert torch.equal(got[..., 8:], x[..., 8:])
    for t, m in enumerate((3, 4, 5)):
        want = rotation_matrix(m, 8) @ x[0, 0, t, :8].double()
        torch.testing.assert_close(got[0, 0, t, :8].double(), want, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("share, kept", [(1.0, 8), (0.75, 6), (0.7, 5), (0.125, 1)])
def test_p_rope_turns_the_pairs_of_the_highest_frequencies_only(share, kept):
    """Barbero et al. 2410.06205: the frequencies that are kept are those of all pairs."""
    x = torch.randn(1, 1, 3, 16)
    got = rotated(x, torch.tensor([[3, 400, 5000]]), rotary_kept=share)
    assert torch.equal(got[..., 2 * kept :], x[..., 2 * kept :])
    for t, m in enumerate((3, 400, 5000)):
        want = rotation_matrix(m, 16)[: 2 * kept, : 2 * kept] @ x[0, 0, t, : 2 * kept].double()
        torch.testing.assert_close(got[0, 0, t, : 2 * kept].double(), want, atol=1e-6, rtol=1e-6)


def test_a_share_of_a_share_of_the_channels():
    rotation = rotary(rotary_fraction=0.5, rotary_kept=0.5).rotation(0)
    assert rotation.frequencies.tolist() == [1, 0.1, 0, 0]


def test_layers_have_bases_by_a_pattern_and_equal_ones_share_a_table(monkeypatch):
    calls, plain = [], Rotary.table

    def table(self, at, layer=0):
        calls.append(self.variant(layer))
        return plain(self, at, layer)

    monkeypatch.setattr(Rotary, "table", table)
    flags = ["--rotary-base", "160000*2,10000", "--encoder-layers", "4", "--decoder-layers", "4"]
    encoder = tiny("rotary", *flags).encoder
    x = torch.zeros(1, 5, encoder.layers[0].embed_dim)
    prepared = encoder.positions.prepare(Batch(x, 5))
    assert calls == [160000.0, 10000.0]
    tables = [prepared[layer.self_attn.kind]["table"] for layer in encoder.layers]
    assert tables[0] is tables[1] is tables[3]
    for table, base in zip(tables, (160000.0, 160000.0, 10000.0)):
        want = encoding_of("rotary", 4, 8, rotary_base=base).transform.table(torch.arange(5)[None])
        assert torch.equal(table, want)


@torch.no_grad()
def test_a_base_by_layer_is_the_base_of_that_layer():
    source, target = sentences(2, 7), sentences(2, 9, seed=1)
    plain, same = tiny("rotary", "--rotary-base", "500"), tiny("rotary", "--rotary-base", "500*2")
    other = tiny("rotary", "--rotary-base", "500,10000")
    assert plain.cfg.rotary_base == 500.0 and other.cfg.rotary_base == "500,10000"
    for model in (same, other):
        model.load_state_dict(plain.state_dict())
    want = plain(source, None, target)[0]
    assert torch.equal(same(source, None, target)[0], want)
    assert (other(source, None, target)[0] - want).abs().max() > 1e-3


def test_products_depend_on_the_distance_only():
    q, k = torch.randn(1, 2, 6, 16), torch.randn(1, 2, 6, 16)
    positions = torch.arange(6)[None]
    products = [
        rotated(q, positions + shift) @ rotated(k, positions + shift).transpose(-1, -2)
        for shift in (0, 1, 1000, 30000)
    ]
    for shifted in products[1:]:
        torch.testing.assert_close(shifted, products[0], atol=2e-5, rtol=0)


def test_table_is_complex64_so_that_half_cannot_touch_it():
    table = rotary().table(torch.arange(4)[None])
    assert table.dtype is torch.complex64 and not table.is_floating_point()
    assert table.shape == (1, 4, 1, 8)


# --- other implementations: interleaved as in RoFormer, half as in Llama


@pytest.mark.parametrize("name", ["q", "k"])
def test_hugging_face(golden, name):
    roformer, llama = golden("rotary_hf_roformer"), golden("rotary_hf_llama")
    positions = torch.arange(roformer["inputs"]["q"].size(2))[None]
    for reference, key, where, flags in (
        (roformer, name, positions, {}),
        (roformer, f"{name}_past3", positions + 3, {}),
        (llama, name, llama["inputs"]["position_ids"], {"rotary_pairing": "half"}),
    ):
        got = rotated(reference["inputs"][name], where, **flags)
        torch.testing.assert_close(got, reference["outputs"][key], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "case, flags, offset",
    [
        ("full", {}, 0),
        ("offset5", {}, 5),
        ("partial8", {"rotary_fraction": 0.5}, 0),
        ("theta500", {"rotary_base": 500.0}, 0),
        ("linear2", {"rotary_scaling": "linear", "rotary_scaling_factor": 2.0}, 0),
        ("ntk4", {"rotary_scaling": "ntk", "rotary_scaling_factor": 4.0}, 0),
        ("cached_q", {}, 6),
        ("cached_k", {}, 0),
    ],
)
def test_rotary_embedding_torch(golden, case, flags, offset):
    ref = golden("rotary_rt")
    x = ref["inputs"]["k" if case == "cached_k" else "q"]
    x = x[:, :, -3:] if case == "cached_q" else x
    got = rotated(x, torch.arange(x.size(2))[None] + offset, **flags)
    torch.testing.assert_close(got, ref["outputs"][case], atol=1e-5, rtol=1e-5)
