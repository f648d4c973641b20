"""What a job brings along into its pods: a Python function, its arguments, the author's files, and
the program that runs them there.

Pure, except that it reads the files to pack and the source of the function.
"""
