"""Clips for training and evaluation: data sets on disk, degradations and augmentation."""
