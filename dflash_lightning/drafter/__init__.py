"""The drafter, in the order the data visits it: anchors, blocks, masks, forward pass, decoding cache."""

from dflash_lightning.drafter.anchors import draw_anchors as draw_anchors
from dflash_lightning.drafter.anchors import valid_anchors as valid_anchors
from dflash_lightning.drafter.blocks import Blocks as Blocks
from dflash_lightning.drafter.blocks import build_blocks as build_blocks
from dflash_lightning.drafter.cache import DrafterCache as DrafterCache
from dflash_lightning.drafter.config import DrafterConfig as DrafterConfig
from dflash_lightning.drafter.config import tap_layers as tap_layers
from dflash_lightning.drafter.mask import BlockMasks as BlockMasks
from dflash_lightning.drafter.mask import build_masks as build_masks
from dflash_lightning.drafter.model import DFlashDrafter as DFlashDrafter
