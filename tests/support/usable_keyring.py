"""A keyring in a file that commands use; chosen by PYTHON_KEYRING_BACKEND, in their processes."""

from tests.upstream.auth.keyrings import FileKeyring


class UsableKeyring(FileKeyring):
    """One that is as good as the system's."""

    priority = 5.0
