"""Pictures of results, as functions of axes; `jointmdp.plots` lists them."""
