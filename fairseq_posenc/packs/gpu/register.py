"""Importing this registers recorded decoding steps, FlexAttention and compiled layers."""

from fairseq_posenc.configuration.features import register_feature
from fairseq_posenc.models.family import CHANGES
from fairseq_posenc.models.language_model import LANGUAGE_MODEL
from fairseq_posenc.models.translation import TRANSLATION
from fairseq_posenc.packs.gpu.compiled import CompileFlags, check_compiled, compile_layers
from fairseq_posenc.packs.gpu.cuda_graphs import GraphFlags, recorder
from fairseq_posenc.packs.gpu.flex import BackendFlags, check_backend
from fairseq_posenc.stacks.decoder import STEPS

register_feature(BackendFlags, check=check_backend)
register_feature(GraphFlags, models=[TRANSLATION.model, LANGUAGE_MODEL.model])
STEPS.append(recorder)
register_feature(CompileFlags, check=check_compiled)
CHANGES.append(compile_layers)
