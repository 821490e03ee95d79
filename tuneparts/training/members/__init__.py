"""What methods with several members share: predictions, scores, operating points, weights lent."""
