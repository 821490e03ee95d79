"""Where the rooms meet: one short function per verb. Heavy imports wait for the verb."""
