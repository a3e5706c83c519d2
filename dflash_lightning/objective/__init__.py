"""What training minimises and what it is for: token losses, their weights, the objectives, acceptance."""

from dflash_lightning.objective.acceptance import Acceptance as Acceptance
from dflash_lightning.objective.acceptance import TreeAcceptance as TreeAcceptance
from dflash_lightning.objective.acceptance import streaks as streaks
from dflash_lightning.objective.kinds import CrossEntropy as CrossEntropy
from dflash_lightning.objective.kinds import Distillation as Distillation
from dflash_lightning.objective.kinds import DPace as DPace
from dflash_lightning.objective.kinds import Objective as Objective
from dflash_lightning.objective.loss import Teacher as Teacher
from dflash_lightning.objective.loss import TokenLosses as TokenLosses
from dflash_lightning.objective.loss import head_loss as head_loss
