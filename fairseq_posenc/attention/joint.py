"""Parameters that one operation reads in place of several, at inference on a GPU.

A decoding step on a GPU is bound by the number of kernels.  On a CPU one product of a few rows with
the joint weight takes longer than three with its parts, so the parts are used.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.versions import in_graph


class JoinedParameters:
    """Mixin of an attention whose parameters are joined for inference.

    Their names and values do not change.  A joined tensor is out of date once other code moves a
    parameter to other memory.
    """

    #: tensors of which parameters are views, by a name; None, which PyTorch 2.4 can compile
    joined: Optional[Mapping[str, Tensor]] = None

    def joinable(self) -> Dict[str, List[Tensor]]:
        """The parameters of each joined tensor."""
        raise NotImplementedError

    def current(self, parts: Mapping[str, Sequence[Tensor]]) -> Dict[str, Tensor]:
        """The joined tensors of *parts*; empty if one is out of date."""
        joined = self.joined or {}
        whole = {name: joined[name] for name in parts if name in joined}
        current = len(whole) == len(parts) and all(are_views(whole[n], parts[n]) for n in parts)
        return whole if current else {}

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Join the parameters; fairseq calls this once for a model that will not be trained."""
        self.joined = {name: join(parts) for name, parts in self.joinable().items()}

    def _apply(self, *args: Any, **kwargs: Any) -> "JoinedParameters":
        """Join the parameters again after ``.half()`` and the like give them new memory."""
        super()._apply(*args, **kwargs)  # type: ignore[misc]  # nn.Module has it
        if self.joined:
            self.make_generation_fast_()
        return self


def join(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor that holds *parameters*, which become views of its rows."""
    whole = torch.cat([parameter.detach() for parameter in parameters])
    for parameter, part in zip(parameters, whole.split([len(each) for each in parameters])):
        parameter.data = part
    return whole


def are_views(whole: Tensor, parts: Sequence[Tensor]) -> bool:
    """True if *parts* follow each other in the memory of *whole*."""
    address = whole.data_ptr()
    for part in parts:
        if part.data_ptr() != address or part.dtype is not whole.dtype:
            return False
        address += part.numel() * part.element_size()
    return True


def launch_bound(x: Tensor) -> bool:
    """True where starting kernels takes the time: on a GPU, without gradients, in eager mode."""
    return x.is_cuda and not (torch.is_grad_enabled() or in_graph())


def weights_and_biases(layers: Sequence[nn.Module]) -> Dict[str, List[Tensor]]:
    """The weights and the biases of linear layers; empty if one product cannot replace theirs.

    It cannot replace layers with the hooks of quantisation noise or pruning, with sharded
    parameters, or of another type.
    """
    for layer in layers:
        if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks:
            return {}
        if layer._parameters.get("weight") is None:
            return {}
    parts: Dict[str, List[Any]] = {
        name: [layer._parameters[name] for layer in layers] for name in ("weight", "bias")
    }
    biases = {bias is None for bias in parts["bias"]}
    # keys may share the projection of queries
    if len(set(layers)) < len(layers) or len(biases) > 1:
        return {}
    return {"weight": parts["weight"]} if True in biases else parts
