"""Parts of the plug-in that it works without; importing this registers them."""

import fairseq_posenc.packs.low_rank.peft_export  # noqa: F401
