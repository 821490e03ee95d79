"""What is typed: the arguments, options and help of every verb, grouped by what one wants to do.

Each function imports its verb when it is called, so that help is quick.
"""
