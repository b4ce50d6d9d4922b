"""Where spans go with `mq --traces`: to an OTLP receiver, as OpenTelemetry's environment says.

By the extra `mq[tracing]`; imported only where it is asked for.
"""

from typing import TYPE_CHECKING

from mq.model.errors import StartupError

if TYPE_CHECKING:
    from mq.http.app import Handle


class Traces:
    """Makes spans and sends them, in the background, in batches, by OTLP over HTTP. It reads
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME (`mq` by default), OTEL_TRACES_SAMPLER and so on.
    Spans that it cannot send are dropped, and logged.
    """

    def __init__(self) -> None:
        """Raises StartupError where the extra is not installed, or its environment is wrong."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError as error:
            raise StartupError(f"--traces needs pip install 'mq[tracing]': {error}") from error
        is_named = "service.name" in OTELResourceDetector().detect().attributes
        resource = Resource.create({} if is_named else {"service.name": "mq"})
        # Ended by the daemon, which knows when nothing is in hand any more.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    def around(self, answer: "Handle") -> "Handle":
        """What answers as that does, each request in a span."""
        from mq.http.traces import TracedDispatcher  # noqa: PLC0415

        return TracedDispatcher(answer, self._provider)

    def end(self) -> None:
        """Sends what is left, blocking, as long as OTEL_EXPORTER_OTLP_TIMEOUT (10 s) at most."""
        self._provider.shutdown()
