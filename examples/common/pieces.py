"""Learn a model of SentencePiece, split texts into its pieces, or join pieces to texts.

    python pieces.py learn TYPE MODEL SIZE TEXT...  TYPE is unigram or bpe; at most a million lines
    python pieces.py split MODEL < TEXT > PIECES
    python pieces.py join MODEL < PIECES > TEXT

Characters too rare for a piece of their own become bytes, so no character is unknown.
"""

import sys

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer


def learn(kind: str, model: str, size: str, *texts: str) -> None:
    """Learn a model; fairseq adds the special symbols."""
    with open(model, "wb") as stream:
        SentencePieceTrainer.train(
            input=list(texts),
            model_writer=stream,
            model_type=kind,
            vocab_size=int(size),
            character_coverage=0.9999,
            byte_fallback=True,
            input_sentence_size=1000000,
            shuffle_input_sentence=True,
            minloglevel=1,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
        )


def convert(model: str, join: bool) -> None:
    """Split the lines of standard input into pieces, or join their pieces to text."""
    pieces = SentencePieceProcessor(model_file=model)
    for line in sys.stdin.buffer:
        text = line.decode().strip()
        made = pieces.decode(text.split()) if join else " ".join(pieces.encode(text, out_type=str))
        sys.stdout.buffer.write(made.encode() + b"\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["learn"] and len(sys.argv) > 5:
        learn(*sys.argv[2:])
    elif sys.argv[1:2] in (["split"], ["join"]) and len(sys.argv) == 3:
        convert(sys.argv[2], join=sys.argv[1] == "join")
    else:
        sys.exit(__doc__)
