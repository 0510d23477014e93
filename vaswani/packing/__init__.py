"""What ``vaswani pack`` puts into a model folder; networks and checkpoints made from one."""
