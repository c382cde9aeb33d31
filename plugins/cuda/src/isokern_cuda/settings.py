"""The names of the plug-in's settings."""

SEED = "ISOKERN_CUDA_SIM_SEED"
SANITIZE = "ISOKERN_CUDA_SIM_SANITIZE"
