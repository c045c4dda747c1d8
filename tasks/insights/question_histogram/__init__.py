"""Question histograms: public questions with closed answers, and noisy counts of them."""
