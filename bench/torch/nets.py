# SPDX-License-Identifier: Apache-2.0
"""The networks that memoir is measured and tested on: the MemoMalloc thesis's, a ViT, a decoder.

    workload = build("resnet50", batch=1, side=224)
    with torch.inference_mode():
        output = workload.module(*workload.arguments())

Nothing is downloaded: weights are random from a fixed seed. Batch normalisation takes its running statistics
from one pass over random input, so activations keep the scale of a trained net: no overflow, no denormals.
Every pass of a workload does exactly the same work. `side` is the image's height and width; for the language
networks it is the number of tokens, in the prompt (prefill) or in the cache (decode).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Net:
    """`make(side)` builds the module, `arguments(module, batch, side, generator)` one call's arguments."""

    name: str
    make: Callable[[int], nn.Module]
    arguments: Callable[[nn.Module, int, int, torch.Generator], tuple]
    smallest_side: int = 32
    axis: str = "pixels"  # what `side` counts: pixels or tokens
    library: str | None = "torchvision"  # whose definition it is; None for our own
    weights_depend_on_side: bool = False


@dataclass(frozen=True)
class Workload:
    """A built network and a source of arguments; concurrent callers need a set each."""

    net: Net
    module: nn.Module
    batch: int
    side: int
    seed: int

    def arguments(self, seed: int | None = None) -> tuple:
        """One call's arguments, from the workload's seed or another one (same shapes, other values)."""
        generator = torch.Generator().manual_seed(self.seed if seed is None else seed)
        with torch.no_grad():  # plain tensors: an inference tensor could not be used for training
            return self.net.arguments(self.module, self.batch, self.side, generator)


# --- vision ---


def _image(_: nn.Module, batch: int, side: int, generator: torch.Generator) -> tuple:
    return (torch.randn(batch, 3, side, side, generator=generator),)


def _torchvision(name: str, **options: Any) -> Callable[[int], nn.Module]:
    def make(_: int) -> nn.Module:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options)

    return make


def _vision_transformer(side: int) -> nn.Module:
    import torchvision

    module = torchvision.models.vit_b_16(weights=None, image_size=side)
    nn.init.normal_(module.heads.head.weight, std=0.02)  # drawn as zeros, every output would be zero
    return module


class DcganDiscriminator(nn.Module):
    """DCGAN's discriminator (Radford et al., 2015), which the thesis runs; convolutional throughout."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
        for scale in (1, 2, 4):
            convolution = nn.Conv2d(width * scale, width * scale * 2, 4, 2, 1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width * scale * 2), nn.LeakyReLU(0.2)]
        layers += [nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid()]
        self.layers = nn.Sequential(*layers)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers(image).flatten(1)


class DcganGenerator(nn.Module):
    """The generator of DCGAN: noise of side / 16 - 3 in each direction becomes an image of `side`."""

    def __init__(self, width: int = 64, noise: int = 100) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.ConvTranspose2d(noise, width * 8, 4, 1, 0, bias=False)]
        for scale in (8, 4, 2):
            layers += [nn.BatchNorm2d(width * scale), nn.ReLU()]
            layers += [nn.ConvTranspose2d(width * scale, width * scale // 2, 4, 2, 1, bias=False)]
        layers += [
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        ]
        self.layers = nn.Sequential(*layers)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.layers(noise)


def _noise(_: nn.Module, batch: int, side: int, generator: torch.Generator) -> tuple:
    return (torch.randn(batch, 100, side // 16 - 3, side // 16 - 3, generator=generator),)


# --- language: a decoder of Qwen2.5-0.5B's shape, and one of two small layers for tests ---

_QWEN = dict(
    hidden_size=896, num_hidden_layers=24, num_attention_heads=14, intermediate_size=4864, vocab_size=151936
)
_QWEN_TINY = dict(
    hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=384, vocab_size=1024
)


def _causal_model(shape: dict[str, int]) -> nn.Module:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        num_key_value_heads=2,
        max_position_embeddings=32768,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        **shape,
    )
    return Qwen2ForCausalLM(config)


class Prefill(nn.Module):
    """A prompt in; the last token's logits and every layer's keys and values out, for a server to keep."""

    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        self.model = _causal_model(shape)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        output = self.model(tokens, use_cache=True, logits_to_keep=1)
        layers = output.past_key_values.layers
        return (output.logits, *(tensor for layer in layers for tensor in (layer.keys, layer.values)))


class Decode(nn.Module):
    """One token against a cache of fixed length (StaticCache); each pass writes its last place again."""

    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        self.model = _causal_model(shape)

    def forward(self, token: torch.Tensor, cache: Any) -> torch.Tensor:
        logits = self.model(token, past_key_values=cache, use_cache=True).logits
        for layer in cache.layers:
            layer.cumulative_length.sub_(1)  # forget the token again: the next pass is this one
        return logits


def _prompt(module: nn.Module, batch: int, side: int, generator: torch.Generator) -> tuple:
    return (torch.randint(module.model.config.vocab_size, (batch, side), generator=generator),)


def _token_and_cache(module: nn.Module, batch: int, side: int, generator: torch.Generator) -> tuple:
    from transformers import StaticCache

    config = module.model.config
    tokens = torch.randint(config.vocab_size, (batch, side), generator=generator)
    cache = StaticCache(config, max_cache_len=side)
    module.model(tokens[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
    return tokens[:, -1:].clone(), cache


def _language(
    name: str, kind: type[nn.Module], shape: dict[str, int], arguments: Callable[..., tuple]
) -> Net:
    return Net(name, lambda _: kind(shape), arguments, 2, axis="tokens", library="transformers")


_ALL = (
    Net("dcgan", lambda _: DcganDiscriminator(), _image, smallest_side=64, library=None),
    Net("deeplabv3_resnet50", _torchvision("deeplabv3_resnet50", weights_backbone=None), _image),
    Net("fcn_resnet50", _torchvision("fcn_resnet50", weights_backbone=None), _image),
    Net("googlenet", _torchvision("googlenet", aux_logits=False, init_weights=False), _image),
    Net("wide_resnet50_2", _torchvision("wide_resnet50_2"), _image),
    Net("vgg16", _torchvision("vgg16"), _image),
    Net(
        "inception_v3",
        _torchvision("inception_v3", aux_logits=False, init_weights=False),
        _image,
        smallest_side=75,
    ),
    Net("regnet_x_8gf", _torchvision("regnet_x_8gf"), _image),
    Net("squeezenet1_0", _torchvision("squeezenet1_0"), _image),
    Net("mnasnet0_75", _torchvision("mnasnet0_75"), _image),
    Net("efficientnet_b4", _torchvision("efficientnet_b4"), _image),
    Net("resnext101_32x8d", _torchvision("resnext101_32x8d"), _image),
    Net("resnet50", _torchvision("resnet50"), _image),
    Net("vit_b_16", _vision_transformer, _image, weights_depend_on_side=True),
    _language("qwen_prefill", Prefill, _QWEN, _prompt),
    _language("qwen_decode", Decode, _QWEN, _token_and_cache),
    Net("dcgan_generator", lambda _: DcganGenerator(), _noise, smallest_side=64, library=None),
    _language("qwen_prefill_tiny", Prefill, _QWEN_TINY, _prompt),
    _language("qwen_decode_tiny", Decode, _QWEN_TINY, _token_and_cache),
)
NETS = {net.name: net for net in _ALL}
EVALUATION = tuple(list(NETS)[:16])  # the thesis's thirteen, ViT, and the decoder's two ways of running
SMALL = ("squeezenet1_0", "mnasnet0_75", "dcgan", "dcgan_generator", "qwen_prefill_tiny", "qwen_decode_tiny")


def build(name: str, *, batch: int, side: int, seed: int = 0, weights: Path | None = None) -> Workload:
    """Builds a network in eval mode, its weights drawn, or mapped from a file of save_weights.

    Raises KeyError for an unknown name and ValueError for a side that the network cannot take.
    """
    net = NETS[name]
    if side < net.smallest_side:
        raise ValueError(
            f"{name} needs a side of at least {net.smallest_side} {net.axis}; {side} was asked for"
        )
    if weights is not None:
        with _WithoutWeights():
            module = net.make(side)
        _attach(module, torch.load(weights, mmap=True, weights_only=True))
        return Workload(net, module.eval(), batch, side, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = net.make(side)
        _calibrate(module, net, seed)
    return Workload(net, module.eval(), batch, side, seed)


def save_weights(workload: Workload, path: Path) -> None:
    """Writes every parameter and buffer, those outside the state dict too, in a form that can be mapped."""
    module = workload.module
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    torch.save({name: tensor.detach() for name, tensor in tensors.items()}, path)


class _WithoutWeights(TorchFunctionMode):
    """Layers made under it have their weights on the meta device: no memory, no drawing."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        if function is torch.empty:
            options["device"] = "meta"
        return function(*arguments, **options)


def _attach(module: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    parameters: dict[int, nn.Parameter] = {}  # tied weights stay one parameter
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        if leaf in owner._parameters:
            owner._parameters[leaf] = parameters.setdefault(
                tensor.data_ptr(), nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
            )
        else:
            owner._buffers[leaf] = tensor


def _calibrate(module: nn.Module, net: Net, seed: int) -> None:
    """Takes the running statistics of every batch normalisation from one pass over two random inputs."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    module.eval()
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        module(*net.arguments(module, 2, 128, torch.Generator().manual_seed(seed)))
