"""Translate documents by fairseq's beam search; blank lines separate documents of tokenised lines.

    python translate.py DATA --path CHECKPOINT --context 3 [flags of fairseq-generate] < EN > DE

A sentence is translated with the sentences before it as context, and their translations as a
prefix. With --context whole, a document that fits is one input, and its output is split into lines.
"""

import logging
import sys
from argparse import Namespace
from itertools import groupby
from typing import Iterator, List, Optional, Tuple

import torch
from context import SEPARATOR, SIDES, Pair, Tokens, contexts, in_pieces, joined, with_context
from fairseq import options
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.hub_utils import GeneratorHubInterface


class Translator(GeneratorHubInterface):
    """fairseq's interface to a checkpoint, which also translates documents."""

    def search(self, source: Tokens, prefix: Tokens, sentences: int) -> List[Tokens]:
        """The sentences of the best translation that begins with *prefix*, without the prefix."""
        numbers, start = (
            words.encode_line(" ".join(side), add_if_not_exist=False, append_eos=end).long()
            for words, side, end in ((self.src_dict, source, True), (self.tgt_dict, prefix, False))
        )
        given = {"prefix_tokens": start[None].to(self.device)} if prefix else None
        most = len(prefix) + sentences * (self.cfg.generation.max_len_b + 1)
        most = min(most, self.max_positions[1] - 1)
        limits = {"inference_step_args": given, "max_len_a": 0, "max_len_b": most}
        ((best, *_),) = self.generate([numbers], self.cfg.generation.beam, **limits)
        tokens = [self.tgt_dict[n] for n in best["tokens"].tolist()[len(prefix) : -1]]
        return [sentence.split() for sentence in " ".join(tokens).split(SEPARATOR)]

    def in_turn(self, text: List[Tokens], count: Optional[int], sides: str) -> Iterator[Tokens]:
        """Translate each sentence with the *count* before it as context; all at once if None."""
        if count is None:
            yield from self.at_once(text)
            return
        before: List[Pair] = []
        longest = [size - 1 for size in self.max_positions]
        # the context leaves room for --max-len-b new tokens, at most half of the positions
        room = (longest[0], longest[1] - min(self.cfg.generation.max_len_b, longest[1] // 2))
        for sentence in text:
            source, prefix, _ = with_context(before, (sentence, []), count, sides, room)
            found = self.search(source, prefix, 1)[0]
            before += [(sentence, found)] if found else []
            yield found

    def at_once(self, text: List[Tokens]) -> Iterator[Tokens]:
        """Translate a document's sentences, as many together as fit."""
        pairs: List[Pair] = [(sentence, []) for sentence in text]
        for piece in in_pieces(pairs, self.max_positions[0] - 1):
            found = self.search(joined(one for one, _ in piece), [], len(piece))
            if len(found) != len(piece):
                said = f"{len(found)} translations, not {len(piece)}; the last are merged or empty"
                print(f"{' '.join(piece[0][0])} ...: {said}", file=sys.stderr)
            found += [[]] * (len(piece) - len(found))
            yield from found[: len(piece) - 1]
            yield [token for sentence in found[len(piece) - 1 :] for token in sentence]


def loaded(words: List[str]) -> Tuple[Translator, Namespace]:
    """Load the checkpoint that a command line names; returns it with the parsed arguments."""
    parser = options.get_generation_parser()
    parser.add_argument("--context", type=contexts, required=True)
    parser.add_argument("--sides", choices=SIDES, default="both")
    args = options.parse_args_and_arch(parser, words)
    models, _, task = load_model_ensemble_and_task([args.path], arg_overrides={"data": args.data})
    found = Translator(convert_namespace_to_omegaconf(args), task, models)
    found = found.half() if args.fp16 else found
    return found.cuda() if torch.cuda.is_available() and not args.cpu else found, args


if __name__ == "__main__":
    logging.disable(logging.INFO)  # fairseq logs several lines per search
    translator, args = loaded(sys.argv[1:])
    longest = translator.max_positions[0] - 1
    every = (line.decode().split() for line in sys.stdin.buffer)
    for has_text, lines in groupby(every, key=bool):
        text = list(lines)
        some = [line for line in text if has_text and len(line) <= longest]
        found = translator.in_turn(some, args.context[0], args.sides)
        for line in text:
            if len(line) > longest:
                print(f"{' '.join(line[:9])} ...: too long; its output is empty", file=sys.stderr)
            print(" ".join(next(found) if line and len(line) <= longest else []), flush=True)
