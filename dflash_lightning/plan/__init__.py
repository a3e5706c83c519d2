"""From lengths to every rank's batches, with numpy only."""

from dflash_lightning.plan.batches import Packing as Packing
from dflash_lightning.plan.batches import PoolSorted as PoolSorted
from dflash_lightning.plan.batches import RandomOrder as RandomOrder
from dflash_lightning.plan.config import PlanConfig as PlanConfig
from dflash_lightning.plan.config import config_facts as config_facts
from dflash_lightning.plan.epoch import Plan as Plan
from dflash_lightning.plan.epoch import plan_batches_count as plan_batches_count
from dflash_lightning.plan.epoch import plan_epoch as plan_epoch
from dflash_lightning.plan.epoch import resolve_edges as resolve_edges
from dflash_lightning.plan.order import Credit as Credit
from dflash_lightning.plan.order import DiversityFirst as DiversityFirst
from dflash_lightning.plan.order import Order as Order
from dflash_lightning.plan.order import Shuffle as Shuffle
from dflash_lightning.plan.samples import Samples as Samples
from dflash_lightning.plan.summary import describe as describe
from dflash_lightning.plan.summary import final_run_warning as final_run_warning
from dflash_lightning.plan.summary import summarize as summarize
from dflash_lightning.plan.windows import RankBatch as RankBatch
from dflash_lightning.plan.windows import Window as Window
from dflash_lightning.plan.windows import count_windows as count_windows
from dflash_lightning.plan.windows import cut_windows as cut_windows
from dflash_lightning.plan.windows import require_ranks_fit as require_ranks_fit
from dflash_lightning.plan.windows import windows_in as windows_in
