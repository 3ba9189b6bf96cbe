"""File to file: options, plan, work folder, parts, workers, batches, previews, reports."""
