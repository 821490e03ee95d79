"""The methods, each a folder or a file: a frozen config that builds a learner."""
