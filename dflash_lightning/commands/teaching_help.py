"""The help text of a command: its description keeps its line breaks, its options show their defaults."""

from argparse import RawDescriptionHelpFormatter

from jsonargparse import DefaultHelpFormatter


class TeachingHelp(DefaultHelpFormatter, RawDescriptionHelpFormatter):
    """For descriptions that hold examples."""
