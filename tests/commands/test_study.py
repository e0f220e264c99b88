"""Studies by command: what ``fairseq-posenc study`` shows and carries out, and fairseq itself."""

import re
import shutil
import signal
from pathlib import Path

import torch
from support.fake_fairseq import FakeCommands
from support.studies import CPU, forked, message, study

from fairseq_posenc.cli import main
from fairseq_posenc.cli import study as cli
from fairseq_posenc.study import study as study_module
from fairseq_posenc.study.checks import check_plan
from fairseq_posenc.study.results import load_results
from fairseq_posenc.study.slurm import parse_settings
from fairseq_posenc.study.study import Pool
from fairseq_posenc.study.work import Worker

pytest_plugins = ["support.toy", "support.studies"]


def test_the_command_shows_and_carries_out_a_plan(read, tmp_path, monkeypatch, capsys):
    read()
    reported, path = [], tmp_path / "plan.yaml"

    def fail(words, epoch=0):
        path.write_text(path.read_text() + "title: Another\n")
        return 0

    def pool(folder, devices, note):
        return Pool(Worker(folder, FakeCommands(fail=fail), note), devices, lambda: None)

    monkeypatch.setattr(study_module, "local_pool", pool)
    monkeypatch.setattr(cli, "_report", reported.append)
    words = ["study", str(path), "--output", str(tmp_path / "study"), "--devices", "cpu"]
    said = "plan.yaml has no results there yet; run the study first, or give its folder with"
    assert said in message(main, [*words, "--report"])
    assert main([*words, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("fairseq-train ") == 4 and shown.count("fairseq-generate ") == 4
    assert "rotary-seed1" in shown and not (tmp_path / "study").exists()
    assert main([*words, "--status"]) == 0
    assert capsys.readouterr().out.endswith("4 runs: 4 waiting\n")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert main([*words, "--jobs", "1"]) == 0
    finally:
        signal.signal(signal.SIGTERM, handler)
    said = capsys.readouterr().out
    assert "plan.yaml: was changed meanwhile" in said and "4 of 4 runs are done" in said
    assert reported == [tmp_path / "study"]
    assert load_results(tmp_path / "study").plan["title"] == ""
    read()
    assert "--jobs 0: must be at least 1" in message(main, [*words, "--jobs", "0"])
    assert "--slurm gpu: 'gpu': expected KEY=VALUE" in message(parse_settings, "gpu")


def test_gpus_that_are_not_there_are_refused(read, tmp_path, monkeypatch):
    read()
    words = ["study", str(tmp_path / "plan.yaml"), "--devices", "0,7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "--devices 0,7: no GPU found; give --devices cpu" in message(main, words)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "--devices 0,7: there is no GPU 7; give some of 0, 1" in message(main, words)


def test_the_status_is_that_of_the_runs_until_the_search_changes(read, tmp_path, capsys):
    search = {"search": {"--lr": ["1e-3", "2e-3"]}, "seeds": [1, 2]}
    study(read(**search), tmp_path / "study", FakeCommands())
    words = ["study", str(tmp_path / "plan.yaml"), "--output", str(tmp_path / "study")]
    words += ["--devices", "cpu", "--status"]
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("4 runs: 4 done\n")
    read(**search, search_seeds=2)
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("8 runs: 2 tried, 2 waiting, 4 done\n")


def test_a_study_by_fairseq_itself(plan, toy, read, tmp_path):
    shutil.rmtree(tmp_path / "data")
    reference = toy.text / "test24"
    languages = {"source_lang": "src", "target_lang": "tgt"}
    data = {"folder": str(toy.joined), "tokenizer": "none", "subwords": "none", **languages}
    data["references"] = str(reference.with_suffix(".tgt"))
    data["sources"] = str(reference.with_suffix(".src"))
    base = "--arch roformer_tiny --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 "
    base += "--share-all-embeddings --criterion label_smoothed_cross_entropy --optimizer adam "
    base += "--lr 0.01 --max-tokens 160 --log-interval 1"
    changes = {"data": data, "base": base, "systems": {"rotary": {}}, "seeds": [1]}
    changed = read(**changes, decode={"--max-len-b": 10}, budget={"epochs": 2})
    check_plan(changed, CPU)
    study(changed, tmp_path / "study", forked)
    (run,) = load_results(tmp_path / "study").runs
    assert run.done, run.error
    assert run.parameters > 1000 and run.updates == 6 and run.tokens > 300
    assert len(run.curve) == run.updates
    assert run.scores["loss"] > 0 and 0 <= run.scores["bleu"] <= 100
    assert re.match(r"nrefs:1\|.*\|version:", run.signatures["bleu"])
    assert (run.folder / "references.txt").read_text() == Path(data["references"]).read_text()
