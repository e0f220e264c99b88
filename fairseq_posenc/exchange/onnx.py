"""Export of masked language models, and of classifiers made from them, to ONNX.

The graph takes ``tokens`` (B, T), numbered as in dict.txt, and returns ``logits``.  It accepts any
batch size and length, and padding on either side.  It is recorded by tracing, which all supported
versions of PyTorch offer.  Where the model branches on values, ``torch.jit.is_tracing()`` selects
the branch that is correct for all values.
"""

import dataclasses
import inspect
import io
import json
from typing import Any, Callable, List, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable, replace_file
from fairseq_posenc.basics.lines import say_on_terminal
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.exchange import formats, native
from fairseq_posenc.exchange.exporter import HEAD, choose_head
from fairseq_posenc.exchange.verify import largest, refuse_difference, sample
from fairseq_posenc.models.kinds import MASKED, PAD, Settings

NAME = "onnx"
#: The value of ``--head`` that exports the output of the encoder, without a head.
FEATURES = "features"
#: The version of ONNX operators (opset); PyTorch 1.12 cannot write version 17.
OPSET = 17 if TORCH_VERSION >= (1, 13) else 16
#: The number of bytes of parameters that one file can hold.
LIMIT = 2 * 10**9
#: Largest number of tokens in the example that is traced.
EXAMPLE = 7


class OneHead(nn.Module):
    """A masked language model with one of its heads, and facts for preparing its input.

    Args:
        head: the name of the head, None for the language-model head, or :data:`FEATURES`.
        symbols: the symbols of the dictionary, in order.
        settings: the complete settings of the model.
    """

    def __init__(
        self, model: Any, head: Optional[str], symbols: List[str], settings: Settings
    ) -> None:
        super().__init__()
        self.model, self.symbols = model, symbols
        self.features, self.head = head == FEATURES, None if head == FEATURES else head
        self.by_token = head not in model.classification_heads  # the output has a dimension T
        self.longest = int(settings["max_positions"])
        self.encoding = settings["position_encoding"]
        self.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V), (B, T, N) or (B, N), or features (B, T, C), for tokens (B, T)."""
        heads = {"features_only": self.features, "classification_head_name": self.head}
        return self.model(tokens, **heads)[0]


class ONNXExporter(formats.Exporter):
    """Writes a masked language model or a classifier to one file."""

    flags = (native.VOCAB, HEAD)

    def export(self, wanted: formats.Wanted) -> formats.Report:
        """See :class:`~fairseq_posenc.exchange.formats.Exporter`; *head* can be ``features``."""
        needed_by = f"export {NAME}"
        import_extra("onnx", needed_by)
        runtime = import_extra("onnxruntime", f"{needed_by} --verify") if wanted.verify else None
        check_writable(wanted.out)
        checkpoint, head = native.read_native(wanted.path, wanted.get("vocab")), wanted.get("head")
        if checkpoint.kind is not MASKED:
            raise UsageError(
                f"{wanted.path}: is a language model; export {NAME} takes masked language models "
                "and classifiers"
            )
        head = FEATURES if head == FEATURES else choose_head(checkpoint, head)
        refuse_untraceable(wanted.path, checkpoint.settings)
        model = checkpoint.load(wanted.path, {})
        exported = OneHead(model, head, checkpoint.symbols, checkpoint.settings)
        size = sum(value.numel() * value.element_size() for value in exported.parameters())
        if size > LIMIT:
            raise UsageError(
                f"{wanted.path}: has {size / 1e9:.1f} GB of parameters in float32; an ONNX file "
                f"holds at most {LIMIT / 1e9:g} GB"
            )
        graph = record(exported, wanted.path)
        difference, description = None, ""
        if runtime is not None:
            description = f"onnxruntime {runtime.__version__}"
            difference = _compare(exported, runner(runtime, graph), wanted.path, description)
        with replace_file(wanted.out) as partial:
            partial.write_bytes(graph)
        note = "the exported output: " + ("the language-model head" if head is None else head)
        return formats.Report([wanted.out], [note, *checkpoint.notes], difference, description)


def refuse_untraceable(path: str, settings: Settings) -> None:
    """Refuse a model whose flags do not allow one graph to serve texts of every length."""
    fields = {each.name: each.metadata for each in dataclasses.fields(MASKED.family.dataclass)}
    limited = {name: data["traceable"] for name, data in fields.items() if data.get("traceable")}
    values = {name: known() if callable(known) else known for name, known in limited.items()}
    target = "an ONNX graph, which must serve texts of every length,"
    expressible = formats.Expressible(target, fields.keys() - values.keys(), values)
    formats.refuse_inexpressible(path, MASKED.family, settings, expressible)


def record(exported: OneHead, path: str) -> bytes:
    """Trace the model and return the content of the file; refuse operations that ONNX lacks."""
    tokens, _ = sample(len(exported.symbols), min(EXAMPLE, exported.longest), 0)
    axes = {"tokens": {0: "batch", 1: "length"}, "logits": {0: "batch"}}
    if exported.by_token:
        axes["logits"][1] = "length"
    options: Any = {}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False  # the newer exporter needs PyTorch 2.6 or later
    getattr(torch._C, "_jit_set_onnx_log_enabled", bool)(False)  # the log would print whole graphs
    graph: Any = io.BytesIO()
    try:
        with torch.no_grad():
            torch.onnx.export(
                exported,
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
    facts = {  # facts for programs that prepare the input
        "position_encoding": exported.encoding,
        "max_positions": str(exported.longest),
        "padding": str(PAD),
        "symbols": json.dumps(exported.symbols, ensure_ascii=False),
    }
    onnx.helper.set_model_props(model, facts)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def runner(runtime: Any, graph: bytes) -> Callable[[Tensor], Tensor]:
    """A function that runs *graph* on a CPU."""
    session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return lambda tokens: torch.from_numpy(session.run(None, {"tokens": tokens.numpy()})[0])


def _compare(
    exported: OneHead, run: Callable[[Tensor], Tensor], path: str, description: str
) -> float:
    """The largest difference between the outputs of both models, padding excluded.

    The batches differ from the traced example in size and length.  They are padded on the right, on
    the left, or not at all.
    """
    say_on_terminal("comparing the two models")
    right, _ = sample(len(exported.symbols), exported.longest, 0)
    lengths = right.ne(PAD).sum(dim=1).tolist()
    left = torch.stack([row.roll(-n) for row, n in zip(right, lengths)])
    differences = []
    for tokens in (right, left, right[:1], right[:1, :2]):
        with torch.no_grad():
            ours = exported(tokens)
        real = tokens.ne(PAD) if exported.by_token else None
        differences.append(largest(ours, run(tokens), real))
        refuse_difference(differences[-1], path, description)
    return max(differences)


formats.register_format(
    NAME,
    summary="a file for onnxruntime: masked language models and classifiers",
    exporter=ONNXExporter(),
)
