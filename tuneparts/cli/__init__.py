"""The command line: one short function per verb. Heavy imports wait for the verb."""
