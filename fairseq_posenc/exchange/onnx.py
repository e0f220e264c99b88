"""Exporting masked language models, and classifiers made of them, to ONNX.

The graph takes ``tokens`` (B, T), numbered as in dict.txt and padded on either side, of any batch
size and length, and returns ``logits``.  It is recorded by tracing, which all supported versions of
PyTorch can.  Where the model branches on values, ``torch.jit.is_tracing()`` selects the branch that
is right for all.
"""

import dataclasses
import inspect
import io
import json
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable, replace_file
from fairseq_posenc.basics.lines import say_on_terminal
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.exchange import formats, native
from fairseq_posenc.exchange.transfer import HEAD, choose_head
from fairseq_posenc.exchange.verify import largest, refuse_difference, sample
from fairseq_posenc.models.kinds import MASKED, PAD, Settings

NAME = "onnx"
#: The value of ``--head`` for the features before any head.
FEATURES = "features"
#: Version of the operators; PyTorch 1.12 does not write the later one.
OPSET = 17 if TORCH_VERSION >= (1, 13) else 16
#: Bytes of parameters that one file can hold.
LIMIT = 2 * 10**9
#: Largest number of tokens in the example that is traced.
EXAMPLE = 7

Run = Callable[[Tensor], Tensor]


class Graph(NamedTuple):
    """A model with one tensor as its input and one as its output, and what a user must know."""

    # computes, from tokens (B, T), logits (B, T, V) or (B, T, N), classes (B, N) of a
    # classification head, or features (B, T, C)
    module: nn.Module
    longest: int  # T is at most this
    by_token: bool  # whether the output has a dimension T
    encoding: str  # value of ``--position-encoding``
    symbols: List[str]  # the symbols of the tokens, in order
    notes: Sequence[str] = ()  # what the user should know


class OneHead(nn.Module):
    """A masked language model with one of its heads."""

    def __init__(self, model: nn.Module, head: Optional[str]) -> None:
        super().__init__()
        self.model, self.features = model, head == FEATURES
        self.head = None if self.features else head

    def forward(self, tokens: Tensor) -> Tensor:
        """The output of the head for tokens (B, T)."""
        heads = {"features_only": self.features, "classification_head_name": self.head}
        return self.model(tokens, **heads)[0]


class ONNXExporter(formats.Exporter):
    """Writes a masked language model or a classifier to one file."""

    flags = (native.VOCAB, HEAD)

    def export(self, wanted: formats.Wanted) -> formats.Report:
        """See :class:`~fairseq_posenc.exchange.formats.Exporter`; ``features`` is a head, too."""
        needed_by = f"export {NAME}"
        import_extra("onnx", needed_by)
        runtime = import_extra("onnxruntime", f"{needed_by} --verify") if wanted.verify else None
        check_writable(wanted.out)
        exported = _read(wanted.path, wanted.get("vocab"), wanted.get("head"))
        graph = record(exported, wanted.path)
        difference, description = None, ""
        if runtime is not None:
            description = f"onnxruntime {runtime.__version__}"
            difference = _compare(exported, runner(runtime, graph), wanted.path, description)
        with replace_file(wanted.out) as partial:
            partial.write_bytes(graph)
        return formats.Report([wanted.out], [*exported.notes], difference, description)


def _read(path: str, vocab: Optional[str], head: Optional[str]) -> Graph:
    """The model to export."""
    checkpoint = native.read_native(path, vocab)
    if checkpoint.kind is not MASKED:
        raise UsageError(
            f"{path}: is a language model; export {NAME} takes masked language models and "
            "classifiers"
        )
    name = FEATURES if head == FEATURES else choose_head(checkpoint, head)
    refuse_untraceable(path, checkpoint.settings)
    model: Any = checkpoint.load(path, {})
    settings = model.completed_settings
    size = sum(value.numel() * value.element_size() for value in model.parameters())
    if size > LIMIT:
        raise UsageError(
            f"{path}: has {size / 1e9:.1f} GB of parameters in float32; an ONNX file holds "
            f"{LIMIT / 1e9:g} GB"
        )
    note = "the output is that of " + ("the language-model head" if name is None else name)
    return Graph(
        module=OneHead(model, name).eval(),
        longest=int(settings.max_positions),
        by_token=name not in model.classification_heads,
        encoding=settings.position_encoding,
        symbols=checkpoint.symbols,
        notes=(note, *checkpoint.notes),
    )


def refuse_untraceable(path: str, settings: Settings) -> None:
    """Refuse a model whose flags say that one graph cannot serve texts of every length."""
    fields = {each.name: each.metadata for each in dataclasses.fields(MASKED.family.dataclass)}
    limited = {name: data["traceable"] for name, data in fields.items() if data.get("traceable")}
    values = {name: known() if callable(known) else known for name, known in limited.items()}
    target = "a graph of ONNX, which serves texts of every length,"
    expressible = formats.Expressible(target, fields.keys() - values.keys(), values)
    formats.refuse_inexpressible(path, MASKED.family, settings, expressible)


def record(exported: Graph, path: str) -> bytes:
    """The content of the file, or a UsageError if an operation has no counterpart in ONNX."""
    tokens, _ = sample(len(exported.symbols), min(EXAMPLE, exported.longest), 0)
    axes = {"tokens": {0: "batch", 1: "length"}, "logits": {0: "batch"}}
    if exported.by_token:
        axes["logits"][1] = "length"
    options: Any = {}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False  # the later exporter needs PyTorch 2.6 or newer
    getattr(torch._C, "_jit_set_onnx_log_enabled", bool)(False)  # the log would print whole graphs
    graph: Any = io.BytesIO()
    try:
        with torch.no_grad():
            torch.onnx.export(
                exported.module,
                (tokens,),
                graph,
                input_names=["tokens"],
                output_names=["logits"],
                dynamic_axes=axes,
                opset_version=OPSET,
                # a folded transpose would store the embedding a second time
                do_constant_folding=False,
                **options,
            )
    except RuntimeError as error:  # all errors of the exporter are RuntimeErrors
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{path}: --position-encoding {exported.encoding} cannot be exported to ONNX ({reason})"
        ) from error
    onnx = import_extra("onnx", f"export {NAME}")
    model = onnx.load_from_string(graph.getvalue())
    facts = {  # what a program must know to prepare the input
        "position_encoding": exported.encoding,
        "max_positions": str(exported.longest),
        "padding": str(PAD),
        "symbols": json.dumps(exported.symbols, ensure_ascii=False),
    }
    onnx.helper.set_model_props(model, facts)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def runner(runtime: Any, graph: bytes) -> Run:
    """Runs *graph* on a CPU."""
    session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return lambda tokens: torch.from_numpy(session.run(None, {"tokens": tokens.numpy()})[0])


def _compare(exported: Graph, run: Run, path: str, description: str) -> float:
    """The largest difference of the outputs, padding excluded.

    The batches have other sizes and lengths than the example, and padding on the right, on the left
    and nowhere.
    """
    say_on_terminal("comparing the two models")
    right, _ = sample(len(exported.symbols), exported.longest, 0)
    lengths = right.ne(PAD).sum(dim=1).tolist()
    left = torch.stack([row.roll(-n) for row, n in zip(right, lengths)])
    differences = []
    for tokens in (right, left, right[:1], right[:1, :2]):
        with torch.no_grad():
            ours = exported.module(tokens)
        real = tokens.ne(PAD) if exported.by_token else None
        differences.append(largest(ours, run(tokens), real))
        refuse_difference(differences[-1], path, description)
    return max(differences)


formats.register_format(
    NAME,
    summary="a file that onnxruntime runs; masked language models and classifiers",
    exporter=ONNXExporter(),
)
