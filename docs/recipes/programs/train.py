"""The program of the recipe_code_files."""

import os

print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
