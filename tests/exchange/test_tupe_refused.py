"""TUPE's released checkpoints: what is refused, and why."""

import pytest
import torch
from support.conversion import convert, refuses
from support.tupe_checkpoints import released, write


class Harmful:
    def __reduce__(self):
        return exec, ("raise RuntimeError('it ran')",)


class TestRefused:
    def test_code(self, tmp_path, out):
        path = write(tmp_path / "source", released(), extra_state=Harmful())
        refuses([str(path), "exec"], "import", "tupe", path, out)

    def test_no_table_of_positions(self, tmp_path, out):
        state = released()
        del state["decoder.sentence_encoder.pos.weight"]
        path = write(tmp_path / "source", state)
        refuses([str(path), "sentence_encoder.pos.weight"], "import", "tupe", path, out)

    def test_another_output_than_the_embedding(self, tmp_path, out):
        name = "decoder.lm_head.weight"
        path = write(tmp_path / "source", {**released(), name: torch.randn(18, 16)})
        refuses([str(path), name, "embed_tokens"], "import", "tupe", path, out)

    @pytest.mark.parametrize(
        "name, early",
        [("pos.weight", False), ("layers.1.self_attn.in_proj_bias", False), ("pos_proj.weight", 1)],
    )
    def test_a_single_number_in_place_of_a_matrix(self, tmp_path, out, name, early):
        name = f"decoder.sentence_encoder.{name}"
        path = write(tmp_path / "source", {**released(early=early), name: torch.tensor(1.0)})
        refuses([str(path), name], "import", "tupe", path, out)

    @pytest.mark.parametrize(
        "args, words",
        [
            ({"activation_fn": "mish"}, ["activation_fn mish"]),
            ({"encoder_layers": 3}, ["no tensor decoder.sentence_encoder.layers.2."]),
            ({"encoder_layers": 1}, ["unexpected tensor decoder.sentence_encoder.layers.1."]),
            ({"encoder_ffn_embed_dim": 20}, ["fc1.weight", "24 x 16", "20 x 16"]),
            ({"rel_pos_bins": 16}, ["rel_pos_bins is 16", "17 rows", "33 x 2"]),
            ({"attn_scale_factor": 0}, ["attn_scale_factor is 0", "above 0"]),
            ({"max_rel_pos": "far"}, ["max_rel_pos is 'far'", "whole number"]),
            ({"encoder_layers": "2"}, ["encoder_layers is '2'", "whole number"]),
            ({"dropout": 2.0}, ["dropout is 2.0", "from 0 to 1"]),
            ({"encoder_attention_heads": 4}, ["relative_attention_bias.weight", "x 2", "x 4"]),
        ],
        ids=str,
    )
    def test_args(self, tmp_path, out, args, words):
        path = write(tmp_path / "source", released(), args)
        refuses([str(path), *words], "import", "tupe", path, out)

    def test_dictionaries(self, tmp_path, out):
        path = write(tmp_path / "source", released())
        dictionary = path.parent / "dict.txt"
        lines = dictionary.read_text().splitlines(keepends=True)
        dictionary.write_text("".join(lines[:-1]))
        words = ["18 rows", "dict.txt", "17 symbols"]
        refuses(words, "import", "tupe", path, out)
        dictionary.write_text("".join([*lines[:-1], "nothing\n"]))
        refuses(["dict.txt: line 10", "'nothing'"], "import", "tupe", path, out)
        dictionary.write_text("".join([*lines[:-1], "<url> 3\n"]))
        refuses(["'<url>' occurs twice"], "import", "tupe", path, out)
        other = dictionary.rename(tmp_path / "other.txt")
        refuses(["dict.txt", "--vocab"], "import", "tupe", path, out)
        other.write_text("".join(lines))
        convert("import", "tupe", path, out, "--vocab", other)

    def test_other_files(self, tmp_path, out):
        path = write(tmp_path / "source", released())
        content = path.read_bytes()
        refuses(["none.pt", "checkpoint.pt"], "import", "tupe", path.parent / "none.pt", out)
        refuses(["source", "checkpoint.pt"], "import", "tupe", path.parent, out)
        path.write_bytes(content[: len(content) // 2])
        refuses(["checkpoint.pt", "truncated"], "import", "tupe", path, out)
        torch.save([1], path)
        refuses(["checkpoint.pt", "not a checkpoint of fairseq 0.9"], "import", "tupe", path, out)
        convert("import", "tupe", write(tmp_path / "source", released()), out)
        ours = out / "checkpoint.pt"
        refuses(["not a checkpoint of fairseq 0.9"], "import", "tupe", ours, tmp_path / "again")
