"""The sbatch job script as Jinja2 templates, and the one function that renders them. Imports nothing of the product."""
