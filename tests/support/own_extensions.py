"""User-defined extensions: the complete files of docs/adding.md, and models that use them."""

import contextlib
import re
from argparse import Namespace
from pathlib import Path

import pytest
from fairseq import models, options
from support.helpers import TINY, TranslationTask

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.configuration.features import FEATURES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.flags.registry import REPLACEMENTS
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.heads import HEADS
from fairseq_posenc.layers.norms import NORMS
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.models.family import CHANGES
from fairseq_posenc.stacks.decoder import STEPS

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r'^```\w+ title="([\w/.]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


def files():
    """The text of each file by its path: files shown on the page, and files that it links to."""
    on_page = FILE.findall((ROOT / "docs" / "adding.md").read_text(encoding="utf-8"))
    beside = (ROOT / "docs" / "mine").glob("*.py")
    return {**dict(on_page), **{f"mine/{path.name}": path.read_text("utf-8") for path in beside}}


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    """A ``--user-dir`` flag; its folder has all files of the page."""
    folder = tmp_path_factory.mktemp("own")
    for path, text in files().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return "--user-dir", str(folder / "mine")


@contextlib.contextmanager
def registries_as_before():
    """When the block ends, remove everything that it registered."""
    registries = [ATTENTIONS, ENCODINGS, FEED_FORWARDS, HEADS, NORMS, models.ARCH_MODEL_REGISTRY]
    registries += [models.ARCH_MODEL_NAME_REGISTRY, models.ARCH_CONFIG_REGISTRY]
    registries += [family.presets for family in FAMILIES.values()]
    inverse, added = models.ARCH_MODEL_INV_REGISTRY, (FEATURES, STEPS, REPLACEMENTS, CHANGES)
    lengths = [len(each) for each in added]
    before = [dict(each) for each in registries], {name: each[:] for name, each in inverse.items()}
    try:
        yield
    finally:
        inverse.update(before[1])
        for registry, entries in zip(registries, before[0]):
            for name in set(registry) - set(entries):
                del registry[name]
            registry.update(entries)
        for each, length in zip(added, lengths):
            del each[length:]
        for family in FAMILIES.values():
            family.declare_again()


def own_model(*flags):
    """A model built without the cache of parsed flags, which would miss new registrations."""
    arguments = ["data", "--task", "translation", "--arch", "posenc_transformer", *TINY, *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    return models.build_model(Namespace(**vars(args)), TranslationTask()).eval()
