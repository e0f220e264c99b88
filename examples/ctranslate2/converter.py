#!/usr/bin/env python3
"""Convert checkpoints of fairseq and fairseq_posenc to CTranslate2, like CTranslate2's converters.

The arguments are those of ct2-fairseq-converter, and the class has the interface of
ctranslate2.converters.  The class converts translation models, language models and encoders.
"""

import argparse
import os
from typing import Any, List, Optional

from ctranslate2.converters import Converter

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import load_plug_in


class FairseqPosencConverter(Converter):
    """Converts models that fairseq trained, with position encodings of fairseq_posenc or without.

    Args:
        model_path: the checkpoint.
        data_dir: the folder with the checkpoint's dictionaries.
        source_lang: the source language, if neither checkpoint nor data name it.
        target_lang: the target language, if neither names it.
        user_dir: a folder with your own extensions of fairseq, if the model needs them.
    """

    def __init__(
        self,
        model_path: str,
        data_dir: str,
        source_lang: Optional[str] = None,
        target_lang: Optional[str] = None,
        user_dir: Optional[str] = None,
    ) -> None:
        self._model_path, self._data_dir = model_path, data_dir
        self._source_lang, self._target_lang = source_lang, target_lang
        self._user_dir = user_dir

    def _load(self) -> Any:
        """CTranslate2's specification of the model, with its weights.

        Raises:
            UsageError: the checkpoint cannot be read, or CTranslate2 cannot compute the model.
        """
        load_plug_in(self._user_dir)
        from fairseq_posenc.exchange.ctranslate2.export import fill, read_expressible
        from fairseq_posenc.exchange.formats import Wanted

        wanted = Wanted(
            self._model_path,
            out="",  # Converter.convert writes
            options={
                "data": self._data_dir,
                "source_lang": self._source_lang,
                "target_lang": self._target_lang,
            },
        )
        found = read_expressible(wanted)
        return fill(found.loaded, found.kind)[0]


def main(arguments: Optional[List[str]] = None) -> None:
    """Read the arguments, and convert."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model_path", required=True, help="the checkpoint")
    parser.add_argument("--data_dir", required=True, help="the folder with dictionaries")
    for side in ("source", "target"):
        said = f"language of the {side}, if neither checkpoint nor data name it"
        parser.add_argument(f"--{side}_lang", help=said)
    parser.add_argument("--user_dir", help="a folder with your own extensions of fairseq")
    Converter.declare_arguments(parser)
    args = parser.parse_args(arguments)
    mapping, out = args.vocab_mapping, args.output_dir
    if mapping is not None and not os.path.isfile(mapping):
        raise UsageError(f"--vocab_mapping {mapping}: no such file; give a vocabulary mapping")
    if os.path.exists(out) and not args.force:
        raise UsageError(f"--output_dir {out}: exists already; give a new folder, or --force")
    converter = FairseqPosencConverter(
        args.model_path, args.data_dir, args.source_lang, args.target_lang, args.user_dir
    )
    print(f"wrote {converter.convert_from_args(args)}")


if __name__ == "__main__":
    main()
