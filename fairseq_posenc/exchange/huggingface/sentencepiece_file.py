"""SentencePiece models: reading, writing, and conversion to the ``model`` of a tokenizer.json.

The package sentencepiece defines the file as a Protocol Buffers message with ``pieces`` (each with
its score and type), ``trainer_spec`` and ``normalizer_spec``.
"""

from typing import Any, Dict, List, Mapping, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.exchange.reader import LEADING

#: The numbers that stand for types of models, and of pieces, in the file.
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
#: How far the score of an unknown character is below the lowest score of any piece.
_RARER = 10.0


def read_model(path: str) -> Any:
    """The ``ModelProto`` in a file of SentencePiece, or a UsageError for any other file."""
    import_extra("google.protobuf", path, "protobuf")
    model = import_extra("sentencepiece.sentencepiece_model_pb2", path).ModelProto()
    try:
        with open(path, "rb") as file:
            model.ParseFromString(file.read())
        if not model.pieces:
            raise ValueError("it has no pieces")
    except Exception as error:  # versions of protobuf differ in what they raise
        raise UsageError(f"{path}: cannot be read as a model of SentencePiece ({error})") from error
    return model


def unigram(model: Any, numbers: Mapping[str, int]) -> Dict[str, Any]:
    """The entry ``model`` of a tokenizer.json; *numbers* maps symbols, in order, to numbers."""
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type in (NORMAL, BYTE)}
    least = min(scores.values(), default=0.0)
    scores.update(dict.fromkeys(LEADING, least))
    # a symbol that is not a piece was an unknown character in the training data
    entries = [[symbol, scores.get(symbol, least - _RARER)] for symbol in numbers]
    return {
        "type": "Unigram",
        "unk_id": numbers["<unk>"],
        "vocab": entries,
        "byte_fallback": model.trainer_spec.byte_fallback,
    }


def merged(model: Any, numbers: Mapping[str, int]) -> Dict[str, Any]:
    """As :func:`unigram`, but for BPE; each split of a piece into two pieces becomes a merge."""
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}
    merges: List[Tuple[float, int, int, str]] = []
    for symbol, score in scores.items():
        for at in range(1, len(symbol)):
            left, right = symbol[:at], symbol[at:]
            if left in scores and right in scores:
                merges.append((-score, numbers[left], numbers[right], f"{left} {right}"))
    return {
        "type": "BPE",
        "vocab": numbers,
        "merges": [pair for *_, pair in sorted(merges)],
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": model.trainer_spec.byte_fallback,
        **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix")),
    }


def renumbered(model: Any, numbers: Mapping[str, int]) -> bytes:
    """The content of a SentencePiece file with the symbols of *numbers*, in their order.

    Programs such as llama.cpp read such a file and merge pieces as in BPE, whatever its type.
    """
    own = {piece.piece: piece for piece in model.pieces if piece.type in (NORMAL, BYTE)}
    written = type(model)()
    written.CopyFrom(model)
    del written.pieces[:]
    for symbol in numbers:  # symbols that are not pieces were unknown in training
        score, kind = 0.0, NORMAL if len(symbol) == 1 else UNUSED
        if symbol in LEADING:
            kind = UNKNOWN if symbol == "<unk>" else CONTROL
        elif symbol in own:
            score, kind = own[symbol].score, own[symbol].type
        written.pieces.add(piece=symbol, score=score, type=kind)
    return written.SerializeToString()
