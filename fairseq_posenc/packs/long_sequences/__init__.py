"""Further attention kernels, encoders and decoders for long sequences, such as BigBird."""
