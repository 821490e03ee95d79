"""Arrays in, splits out: data sets, splits, chunks and resumable batches."""
