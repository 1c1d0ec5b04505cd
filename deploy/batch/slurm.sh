#!/bin/sh
#SBATCH --gpus-per-task=1 --cpus-per-task=8 --requeue
segmentation-pieces make out.mp4 "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
