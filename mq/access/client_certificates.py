"""TLS of a client: whose certificates it believes, and the one that it shows."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files, all PEM. `ca_file`: whose servers are believed, instead of those that the system
    believes; `certificate`: what is shown to a server that asks who comes, with those between it
    and a root; `key`: its private key, unless it stands in the same file.
    """

    ca_file: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None

    def __bool__(self) -> bool:
        return self != Certificates()

    def context(self, url: str) -> ssl.SSLContext | None:
        """What connections to the URL are made with; None: what is the default. Raises ValueError
        for files that cannot be used, and for a URL that is not HTTPS: nobody is to believe that
        what is sent there is secret.
        """
        if not self:
            return None
        if urlsplit(url).scheme != "https":
            raise ValueError("certificates are for an https:// URL alone")
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs its certificate")
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ValueError(f"cannot use the CA file {self.ca_file}: {_why(error)}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except OSError as error:
                files = ", ".join(str(each) for each in (self.certificate, self.key) if each)
                raise ValueError(f"cannot use {files}: {_why(error)}") from None
        return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM of what is asked for"
    return error.strerror or "cannot be read"


def _no_password() -> str:
    # Without this OpenSSL would ask whoever sits at the terminal.
    raise ValueError("the key is encrypted: there is no password for it")
