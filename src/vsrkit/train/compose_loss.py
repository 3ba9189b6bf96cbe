"""The loss of a run, composed of its terms."""

from collections.abc import Iterator
from pathlib import Path

from torch import nn

from vsrkit.hardware.device import Precision, set_memory_layout
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.layers.flow import flow_networks
from vsrkit.train.adversarial import Adversarial
from vsrkit.train.config import TrainConfig
from vsrkit.train.distill.distillation import Distillation
from vsrkit.train.losses import (
    Charbonnier,
    Colour,
    Grid,
    ModelLoss,
    Psnr,
    Spectrum,
    Steadiness,
    Term,
)
from vsrkit.train.perceptual import Perceptual


def compose_loss(
    model: nn.Module, config: TrainConfig, teacher: BasicVSR | None, scale: int
) -> nn.Module:
    """The loss as a module that holds the model: (lr, target) -> terms.

    Args:
        model: to be trained.
        config: of the run.
        teacher: whose features the model learns; None: it learns frames.
        scale: of the model.
    """
    if teacher is not None:
        cache = Path(config.run_dir) / "teacher_outputs" if config.distinct_clips else None
        return Distillation(model, teacher, weight=config.teacher_weight, cache=cache)
    if not config.losses.pixels_only and not config.flow_learning_rate_scale:
        for network in flow_networks(model):  # saves its backward pass
            network.requires_grad_(False)
    return ModelLoss(model, list(_terms(config, scale)), mirrored=config.mirrored)


def _terms(config: TrainConfig, scale: int) -> Iterator[Term]:
    losses = config.losses
    if losses.pixel and config.loss == "psnr":
        yield Psnr(weight=losses.pixel, steadiness=config.steadiness)
    elif losses.pixel:
        yield Charbonnier(weight=losses.pixel, reduction=config.loss_reduction)
    if losses.steadiness:
        yield Steadiness(weight=losses.steadiness)
    if losses.colour:
        yield Colour(weight=losses.colour)
    if losses.grid:
        yield Grid(weight=losses.grid, scale=scale)
    if losses.spectrum:
        yield Spectrum(weight=losses.spectrum)
    if losses.perceptual:
        yield Perceptual(losses)
    if losses.gan:
        yield Adversarial(losses)


def set_loss_layout(loss: nn.Module, model: nn.Module, precision: Precision, device: str) -> None:
    """Move the networks of a loss but the model to its device, in the layout of `precision`."""
    for network in loss.children():
        if network is not model:  # a teacher, or the terms
            set_memory_layout(network.to(device), precision)


def adversarial_term(loss: nn.Module) -> Adversarial | None:
    """The adversarial term of a loss, if it has one."""
    return next((term for term in loss.modules() if isinstance(term, Adversarial)), None)
