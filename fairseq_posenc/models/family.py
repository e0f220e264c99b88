"""Model families: flags, presets, registration and supported tasks."""

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple, TypeVar

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    register_model,
    register_model_architecture,
)
from fairseq.tasks import FairseqTask
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.configuration.effect import check_given, declared_by, given_flags
from fairseq_posenc.configuration.fields import Field, declared_fields, layer_flags, make_dataclass
from fairseq_posenc.configuration.resolve import (
    close,
    configure,
    fill_missing,
    is_complete,
    left_open,
    modernise,
    open_config,
)
from fairseq_posenc.encodings import Stack
from fairseq_posenc.flags import registry
from fairseq_posenc.flags.options import SIDES, Options, option

Preset = Mapping[str, Any]
Model = TypeVar("Model", bound=type)

#: Functions that change a newly built model in place, as the flags in its configuration say.
CHANGES: List[Callable[[nn.Module, Options], None]] = []
# fairseq criterions that fail with an adaptive softmax; a user's own criterion may support it
_WHOLE_SOFTMAX = ("cross_entropy", "label_smoothed_cross_entropy")


@dataclass
class Family:
    """A model family: its name, flags, presets and tasks."""

    model: str  # the ``--arch`` without a preset
    what: str  # one of its models in messages, such as "a language model"
    example: str  # an architecture that messages suggest
    tasks: Tuple[str, ...]  # fairseq tasks that need this family
    # the flags, apart from those of positions, attention and layers
    own_fields: Callable[[], List[Field]]
    presets: Dict[str, Preset]  # settings by architecture; *model* itself has none
    stacks: Callable[[Any], List[Stack]]  # returns the stacks of a complete configuration
    # completes and checks a configuration, given the family, the preset and the task's settings
    configure: Callable[[Any, "Family", Preset, Any], None] = configure
    # in fine-tuning, completes the command line with settings of the pre-trained checkpoint
    inherit: Callable[[Any, str, Preset], None] = lambda args, arch, preset: None
    # whether the model is registered with its dataclass, like fairseq's newer models
    for_hydra: bool = True
    criterion: Optional[str] = None  # the only criterion for its models, or None for any
    like: Tuple[str, ...] = ()  # *model* of other families whose features it shares

    def __post_init__(self) -> None:
        self.presets = {self.model: {}, **self.presets}
        self.completed: Dict[str, Any] = {}  # completed settings of the last command line
        self.models = (self.model, *self.like)  # the families whose features this one has
        self._declare()

    def _declare(self) -> None:
        name = "".join(word.title() for word in self.model.split("_")) + "Config"
        fields = self.own_fields() + declared_fields(layer_flags(self.models))
        self.dataclass = make_dataclass(name, fields)
        self.declared = declared_by(self.dataclass)

    def register(self, model: Model) -> Model:
        """Class decorator that registers a model and its architectures with fairseq."""
        FAMILIES[self.model] = self
        self.class_ = model
        model.add_args = staticmethod(self.add_args)  # type: ignore[attr-defined]
        register_model(self.model, dataclass=self.dataclass if self.for_hydra else None)(model)
        for name in self.presets:
            self._register_architecture(name)
        return model

    def _register_architecture(self, name: str) -> None:
        complete = self._architecture(name, self.presets[name])
        if name == self.model and self.for_hydra:
            # register_model stored a function that does nothing; ours completes the settings, so
            # that checkpoints record the defaults
            ARCH_CONFIG_REGISTRY[name] = complete
        else:
            register_model_architecture(self.model, name)(complete)

    def add_preset(self, name: str, preset: Preset) -> None:
        """Register another architecture; see :func:`register_preset`."""
        for setting in preset:
            if setting not in self.declared:
                raise UsageError(
                    f"preset {name}: {setting} is no setting of {self.model}; give names of flags, "
                    "with underscores and without the leading dashes"
                )
        self.presets[name] = preset
        self._register_architecture(name)

    def declare_again(self) -> None:
        """Declare the flags again, with the flags that newly registered entries add."""
        self._declare()
        if self.for_hydra:
            setattr(self.class_, "__dataclass", self.dataclass)  # noqa: B010 - not to be mangled
            MODEL_DATACLASS_REGISTRY[self.model] = self.dataclass
            node = self.dataclass()
            node._name = self.model
            store = ConfigStore.instance()
            store.store(name=self.model, group="model", node=node, provider="fairseq")

    def add_args(self, parser: ArgumentParser) -> None:
        """Add the flags to *parser* without defaults, so that only given flags are set."""
        gen_parser_from_dataclass(parser, self.dataclass(), delete_default=True)

    def _architecture(self, name: str, preset: Preset) -> Callable[[Any], None]:
        def architecture(cfg: Options) -> None:
            if OmegaConf.is_config(cfg) and self.for_hydra:
                fill_missing(cfg, preset)  # build_model, which knows the task, completes it
                return
            self._refuse_other_tasks(name, cfg)
            given = self._given(cfg, {}, notice=True)
            self.inherit(cfg, name, preset)
            with left_open(cfg):
                self.complete(cfg, preset, cfg)
            check_given(given, cfg, self.declared)
            self._refuse_other_criterions(name, cfg)
            self.completed = self._settings(cfg, cfg)

        return architecture

    def _given(self, cfg: Options, preset: Preset, notice: bool = False) -> Dict[str, Any]:
        with open_config(cfg):
            modernise(cfg, self.dataclass, notice)
        complete = is_complete(cfg)  # as in a checkpoint, where no flag counts as given
        return {} if complete else given_flags(cfg, self.declared, preset)

    def _settings(self, cfg: Options, where: Any) -> Dict[str, Any]:
        """The model's settings, and the name of the task; *where* is the task or a command line."""
        settings = {n: getattr(cfg, n, None) for n in self.declared if n != "_name"}
        return {**settings, "task": _task_in(where)}

    def complete(self, cfg: Options, preset: Preset, settings: Any) -> None:
        """Complete and check a flat configuration, in place; *settings* are the task's."""
        self.configure(cfg, self, preset, settings)

    def complete_for_task(self, cfg: Options, task: FairseqTask) -> None:
        """Complete and check the configuration of a model to build, unless it is complete.

        A command line gives a complete configuration.  A configuration is not complete if it comes
        from hydra or a checkpoint older than some flags, or if a program has changed it.
        """
        arch = option(cfg, "_name", self.model)
        self._refuse_other_tasks(arch, task)
        if self._settings(cfg, task) != self.completed:
            given = self._given(cfg, self.presets.get(arch, {}))
            self.complete(cfg, {}, task_settings(task))
            check_given(given, cfg, self.declared)
        close(cfg, self.declared)
        for side in SIDES:
            kept = option(cfg, f"{side}_layers_to_keep")
            if kept:  # fairseq prunes the checkpoint to these layers, and builds no others
                setattr(cfg, f"{side}_layers", len(kept.split(",")))

    def finish(self, model: Any, cfg: Options) -> Any:
        """Store *cfg* in the new *model*, and apply :data:`CHANGES` to the model."""
        model.completed_settings = cfg
        for change in CHANGES:
            change(model, cfg)
        return model

    def _refuse_other_tasks(self, arch: str, where: Any) -> None:
        task = _task_in(where)
        for other in FAMILIES.values():
            if other is not self and task in other.tasks and task not in self.tasks:
                raise UsageError(
                    f"--arch {arch} is {self.what} for --task {self.tasks[0]}, but --task {task} "
                    f"needs {other.what}, for example --arch {other.example}"
                )

    def _refuse_other_criterions(self, arch: str, args: Options) -> None:
        criterion, cutoff = option(args, "criterion"), option(args, "adaptive_softmax_cutoff")
        if criterion is None:  # in commands other than training
            return
        if self.criterion not in (None, criterion):
            raise UsageError(
                f"--criterion {criterion}: does not train {self.what} like --arch {arch}; give "
                f"--criterion {self.criterion}"
            )
        for other in FAMILIES.values():
            if other.criterion == criterion and other is not self:
                raise UsageError(
                    f"--criterion {criterion}: needs {other.what}, but --arch {arch} is "
                    f"{self.what}; give, for example, --arch {other.example}"
                )
        # only criterions that fit the task have this flag
        classifies = hasattr(args, "classification_head_name")
        if option(args, "task") == "sentence_prediction" and not classifies:
            raise UsageError(
                f"--criterion {criterion}: does not fit --task sentence_prediction; give "
                "--criterion sentence_prediction_metrics or sentence_prediction"
            )
        if criterion == "adaptive_loss" and cutoff is None:
            raise UsageError(
                "--criterion adaptive_loss: give --adaptive-softmax-cutoff, for example 20000,60000"
            )
        if criterion == "adaptive_loss" and args.ddp_backend in ("c10d", "pytorch_ddp"):
            raise UsageError(
                f"--criterion adaptive_loss: does not work with --ddp-backend {args.ddp_backend}, "
                "even with one process; give --ddp-backend legacy_ddp"
            )
        if criterion in _WHOLE_SOFTMAX and cutoff is not None:
            raise UsageError(
                f"--adaptive-softmax-cutoff {cutoff}: --criterion {criterion} does not support it; "
                "give --criterion adaptive_loss --ddp-backend legacy_ddp"
            )


def _task_in(where: Any) -> Optional[str]:
    settings = task_settings(where) or where
    return option(settings, "task") or option(settings, "_name")


class PartlySaved:
    """Mixin for models whose checkpoints lack some parameters; list it before fairseq's class."""

    #: names of the parameters and buffers that checkpoints leave out
    left_out: FrozenSet[str] = frozenset()
    #: refuses a state dict that was trained with different values of the left-out parameters
    check_state: Callable[[Mapping[str, Tensor]], None] = staticmethod(lambda state: None)

    def state_dict(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """The state dict for a checkpoint, without :attr:`left_out`."""
        state = super().state_dict(*args, **kwargs)  # type: ignore[misc]  # fairseq's
        for name in self.left_out:
            state.pop(name, None)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a state dict; parameters in :attr:`left_out` keep their values if it lacks them."""
        if self.left_out:
            self.check_state(state_dict)
            state_dict = {**super().state_dict(), **state_dict}  # type: ignore[misc]
        return super().load_state_dict(state_dict, *args, **kwargs)  # type: ignore[misc]


FAMILIES: Dict[str, Family] = {}


@registry.listeners.append
def _declare_again() -> None:
    for family in FAMILIES.values():
        family.declare_again()


def family_of(name: Optional[str]) -> Optional[Family]:
    """The family of a model or architecture, or None for fairseq's own.

    This includes architectures that users register with fairseq's ``register_model_architecture``.
    """
    return FAMILIES.get(ARCH_MODEL_NAME_REGISTRY.get(name, name))


def register_preset(name: str, base: str, **settings: Any) -> None:
    """Register an architecture, *base* with other settings; a user's ``--user-dir`` may call this.

    Args:
        name: the new value of ``--arch``.
        base: an architecture of the plug-in, such as ``roformer_base``.
        settings: values of flags, by name: ``encoder_layers=12``.

    Raises:
        UsageError: *base* is no preset of the plug-in, *name* is taken, or a setting is unknown.
    """
    family = family_of(base)
    if family is None or base not in family.presets:
        raise UsageError(
            f"preset {name}: {base} is no architecture of the plug-in; give one that "
            "`fairseq-posenc list` prints"
        )
    if name in ARCH_MODEL_NAME_REGISTRY:
        raise UsageError(f"preset {name}: this architecture exists already; choose another name")
    family.add_preset(name, {**family.presets[base], **settings})
