"""The paper's experiments, one module per figure; `jointmdp reproduce` runs them."""
