"""Places to keep checkpoints: memory, a directory, S3, all behind one protocol."""

from dflash_lightning.checkpoint.stores.errors import StoreError as StoreError
from dflash_lightning.checkpoint.stores.open import open_store as open_store
from dflash_lightning.checkpoint.stores.protocol import ObjectFacts as ObjectFacts
from dflash_lightning.checkpoint.stores.protocol import ObjectStore as ObjectStore
from dflash_lightning.checkpoint.stores.protocol import PendingUpload as PendingUpload
from dflash_lightning.checkpoint.stores.protocol import Upload as Upload
from dflash_lightning.checkpoint.stores.settings import StoreSettings as StoreSettings
