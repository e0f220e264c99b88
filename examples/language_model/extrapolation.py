"""Compare the perplexity of language models at several context lengths.

    python extrapolation.py DATA-BIN --output curves.png --lengths 64,128,256,512,1024 \\
        rotary=rotary/checkpoint_last.pt alibi=alibi/checkpoint_last.pt \\
        "yarn=rotary/checkpoint_last.pt {'rotary_scaling': 'yarn', 'rotary_scaling_factor': 8}"

Each NAME=CHECKPOINT becomes a curve; a dictionary after it overrides settings of the model, as
--model-overrides does. Runs with the same NAME, such as several seeds, share one curve: their mean,
with their range shaded.

Context length L: the model reads windows of L tokens, each starting at position 0, and is scored on
the last K of them (--last, by default half of the shortest length). For every L, the windows end at
the same positions of the text, so all lengths and models are scored on the same tokens and differ
only in how far back they see. The usual perplexity, which scores every token of blocks of L tokens,
needs a run with --lengths L --last L for each length.

The curve of a model with a position table ends at the length of the table. A dashed line marks the
training length. The perplexities are also printed as a table and written to --csv.
"""

import csv
import math
import os
import re
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from statistics import mean
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import FairseqLanguageModel
from fairseq.utils import import_user_module
from torch import Tensor

import fairseq_posenc
from fairseq_posenc.analysis import figures
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable, replace_file
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.reading import model_settings, read_checkpoint
from fairseq_posenc.checkpoints.settings import task_of
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.values import read_overrides

WIDE = 3  # ratio of perplexities above which the y axis is logarithmic


class Run(NamedTuple):
    """One checkpoint of the command line, with its overrides."""

    name: str
    path: str
    overrides: Dict[str, Any]
    trained: int  # tokens per sample in training


class Measurement(NamedTuple):
    """A run and its losses at each length."""

    run: Run
    tokens: int  # number of scored tokens, the same at every length
    bits: Dict[int, float]  # mean loss in bits per token, by length

    def perplexity(self, length: int) -> float:
        """2 to the power of the loss at *length*."""
        return 2.0 ** self.bits[length]


def read_run(text: str) -> Run:
    """Parse ``NAME=CHECKPOINT`` or ``NAME=CHECKPOINT {...}``, and check that it can be scored."""
    match = re.fullmatch(r"([^=]+)=(\S.*?)(?:\s+(\{.*\}))?\s*", text, re.DOTALL)
    if match is None:
        raise UsageError(f"{text}: expected NAME=CHECKPOINT or 'NAME=CHECKPOINT {{overrides}}'")
    name, path, overrides = match[1].strip(), match[2], read_overrides(match[3] or "{}")
    checkpoint = read_checkpoint(path, lazy=True)
    task = task_of(checkpoint)
    trained_with = option(task, "_name") or option(task, "task")
    others = any(option(task, name) for name in ("add_bos_token", "self_target", "past_target"))
    if trained_with != "language_modeling" or others:
        raise UsageError(
            f"{path}: was trained with --task {trained_with}{' on other targets' * others}; give a "
            "checkpoint of language_modeling that reads plain text and predicts the next token"
        )
    known = {*model_settings(checkpoint), *plug_in_flags()}
    for key in overrides:
        if key not in known:
            raise UsageError(f"{name}: override {key!r}: {path} has no such setting")
    return Run(name, path, overrides, int(task.tokens_per_sample))


def longest_context(model: FairseqLanguageModel) -> float:
    """Size of the model's position table, or infinity if it takes any length."""
    encoding = getattr(model.decoder, "encoding", None)
    if encoding is None:  # a model of fairseq's own
        return getattr(model.decoder.embed_positions, "max_positions", math.inf)
    return encoding.stack.max_positions if encoding.bounded else math.inf


def read_text(args: Namespace, dictionary: Dictionary) -> Tensor:
    """One split of binarised data as one text (N + 1), which begins with ``</s>`` as in fairseq."""
    dataset = data_utils.load_indexed_dataset(os.path.join(args.data, args.subset), dictionary)
    if dataset is None or not len(dataset):
        raise UsageError(f"--subset {args.subset}: not found in {args.data}")
    sentences = map(dataset.__getitem__, range(len(dataset)))
    return torch.cat((torch.tensor([dictionary.eos()]), *sentences)).long()


def choose_windows(size: int, args: Namespace) -> Tensor:
    """End positions of the windows in a text of *size* tokens, the same for every length.

    If ``--tokens`` limits the number of windows, they are spread over the text.

    Returns:
        (W,), the index after the last token of each window.
    """
    ends = torch.tensor(range(args.lengths[-1], size + 1, args.last))
    if not len(ends):
        raise UsageError(f"--lengths {args.lengths[-1]}: {args.subset} has only {size} tokens")
    wanted = math.ceil(args.tokens / args.last) if args.tokens else len(ends)
    if wanted < len(ends):
        ends = ends[torch.linspace(0, len(ends) - 1, wanted).long()]
    return ends


@torch.no_grad()
def mean_loss(
    model: FairseqLanguageModel, text: Tensor, windows: Tensor, length: int, args: Namespace
) -> float:
    """Mean loss over the last tokens of all windows, in bits per token.

    Args:
        text: (N + 1); token i + 1 is predicted from the tokens up to i.
        windows: the end positions of windows, (W,).
        length: tokens per window.
        args: ``--last``, and ``--max-tokens``, the size of batches, which one window may exceed.
    """
    total = 0.0
    before = torch.arange(-length, 0)
    for ends in windows.split(max(1, args.max_tokens // length)):
        tokens = (ends.unsqueeze(1) + before).to(text.device)  # (B, L)
        target = text[tokens[:, -args.last :] + 1]  # (B, K)
        features = model(text[tokens], features_only=True)[0][:, -args.last :]  # (B, K, C)
        scores = model.get_normalized_probs(
            (model.output_layer(features), None), log_probs=True, sample={"target": target}
        )  # (B, K, V)
        total -= float(scores.gather(2, target.unsqueeze(2)).sum(dtype=torch.float64))
    return total / (len(windows) * args.last) / math.log(2)


def measure(run: Run, args: Namespace) -> Measurement:
    """Measure one run at every length that its model can read."""
    device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    remedy = "give the data folder of its training, and override no sizes"
    loaded = load(run.path, {**run.overrides, "data": args.data}, device=device, remedy=remedy)
    longest = longest_context(loaded.model)
    lengths = [length for length in args.lengths if length <= longest]
    if not lengths:
        raise UsageError(
            f"--lengths {args.lengths[0]}: {run.name} has a table of {longest:g} positions; add "
            "a shorter length"
        )
    if lengths != args.lengths:
        told = f"{run.name}: its table ends at {longest:g} positions, as does its curve"
        print(told, file=sys.stderr)
    text = read_text(args, loaded.task.source_dictionary)
    windows = choose_windows(len(text) - 1, args)
    measurement = Measurement(run, len(windows) * args.last, {})
    for length in lengths:
        measurement.bits[length] = mean_loss(loaded.model, text.to(device), windows, length, args)
        told = f"{run.name}: {measurement.perplexity(length):.2f} at {length} tokens, {run.path}"
        print(told, file=sys.stderr)
    return measurement


def curves_of(measurements: Sequence[Measurement]) -> Dict[str, Dict[int, List[float]]]:
    """Perplexities by name, and by each length at which all runs of the name were evaluated."""
    runs: Dict[str, List[Measurement]] = {}
    for each in measurements:
        runs.setdefault(each.run.name, []).append(each)
    return {
        name: {
            length: [each.perplexity(length) for each in group]
            for length in group[0].bits
            if all(length in each.bits for each in group)
        }
        for name, group in runs.items()
    }


def render(measurements: Sequence[Measurement], args: Namespace) -> List[str]:
    """The lines of a Markdown table, with a row per curve and a column per length."""
    scored = f"{measurements[0].tokens:,} tokens of {args.subset}"
    what = f"Perplexity of {scored}, the last {args.last} of each window, at these lengths:"
    head = ["name", *map(str, args.lengths)]
    rows = [head, ["---"] * len(head)]
    for name, curve in curves_of(measurements).items():
        cells = []
        for values in (curve.get(length, []) for length in args.lengths):
            each = f" ({', '.join(f'{value:.2f}' for value in values)})" if len(values) > 1 else ""
            cells.append(f"{mean(values):.2f}{each}" if values else "-")
        rows.append([name, *cells])
    return [what, "", *("| " + " | ".join(cells) + " |" for cells in rows)]


def write_csv(measurements: Sequence[Measurement], args: Namespace) -> None:
    """Write one row per checkpoint and length."""
    fields = "name checkpoint overrides trained subset tokens last length bits perplexity".split()
    with replace_file(args.csv, "--csv") as file, open(file, "w", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(fields)
        for measurement in measurements:
            name, path, overrides, trained = measurement.run
            same = [name, path, overrides or "", trained]
            same += [args.subset, measurement.tokens, args.last]
            for length, bits in measurement.bits.items():
                row = [length, f"{bits:.6f}", f"{measurement.perplexity(length):.4f}"]
                table.writerow(same + row)


def draw(measurements: Sequence[Measurement], args: Namespace) -> None:
    """Plot all curves in one figure."""
    pyplot = figures.import_pyplot("--output")
    from matplotlib import ticker

    figure, axes = pyplot.subplots(figsize=(8.5, 5), constrained_layout=True)
    for number, (name, curve) in enumerate(curves_of(measurements).items()):
        figures.plot_runs(axes, curve, label=name, **figures.curve_style(number))
    for trained in sorted({each.run.trained for each in measurements}):
        axes.axvline(trained, linestyle="--", color="grey", linewidth=1, zorder=0)
        top = axes.get_xaxis_transform()  # y is a share of the height
        axes.text(trained, 0.99, f" trained at {trained}", transform=top, va="top", color="grey")
    axes.set_xscale("log", base=2)
    axes.set_xticks(args.lengths)
    every = [m.perplexity(length) for m in measurements for length in m.bits]
    if max(every) > WIDE * min(every):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.set_minor_locator(ticker.NullLocator())
    axes.set(xlabel="context length (tokens)", ylabel=f"perplexity ({args.subset})")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))  # outside: the curves fill the axes
    figures.save_figure(figure, args.output)


def check_arguments(args: Namespace) -> None:
    """Complete the arguments in place; refuse arguments that would fail after the measurement."""
    if not os.path.isfile(os.path.join(args.data, "dict.txt")):
        raise UsageError(f"{args.data}: has no dict.txt; give the output of fairseq-preprocess")
    try:
        lengths = sorted({int(number) for number in args.lengths.split(",")})
    except ValueError:
        lengths = [0]
    shortest = lengths[0]
    if shortest < 1:
        raise UsageError(f"--lengths {args.lengths}: expected numbers such as 128,256,512")
    args.lengths = lengths
    args.last = max(shortest // 2, 1) if args.last is None else args.last
    if not 0 < args.last <= shortest:
        raise UsageError(f"--last {args.last}: expected 1 to {shortest}, of --lengths {shortest}")
    for flag, number in (("tokens", args.tokens), ("max-tokens", args.max_tokens)):
        if number is not None and number < 1:
            raise UsageError(f"--{flag} {number}: expected 1 or more")
    figures.check_figure(args.output, "--output")
    if args.csv is not None:
        check_writable(args.csv, "--csv")


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Measure, print and plot."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA-BIN", help="output folder of fairseq-preprocess")
    parser.add_argument("runs", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--output", required=True, type=Path, help="the figure to write")
    parser.add_argument("--csv", type=Path, help="also write perplexities here")
    parser.add_argument("--lengths", required=True, metavar="L,L,...", help="context lengths")
    parser.add_argument("--last", type=int, metavar="K", help="tokens scored per window")
    parser.add_argument("--subset", default="valid", help="subset of DATA-BIN (valid)")
    parser.add_argument("--tokens", type=int, help="score about this many tokens, evenly spread")
    parser.add_argument("--max-tokens", type=int, default=8192, help="tokens per batch (8192)")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--user-dir", help="a folder with your own encodings")
    args = parser.parse_args(argv)
    fairseq_posenc.register()
    import_user_module(args)
    try:
        check_arguments(args)
        runs = list(map(read_run, args.runs))
        measurements = [measure(run, args) for run in runs]
        print("\n".join(render(measurements, args)))
        if args.csv:
            write_csv(measurements, args)
        draw(measurements, args)
    except UsageError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
