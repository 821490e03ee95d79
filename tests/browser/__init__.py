"""A package, so that fixtures of package scope end with it: the browser holds an event loop."""
