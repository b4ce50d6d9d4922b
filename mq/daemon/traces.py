"""Sends the spans of `mq --traces` to an OTLP receiver, as OpenTelemetry's environment configures
it.

By the extra `mq[tracing]`; imported only on request.
"""

from typing import TYPE_CHECKING

from mq.model.errors import StartupError

if TYPE_CHECKING:
    from mq.http.dispatcher import Tracing


class Traces:
    """Makes spans and sends them, in the background, in batches, by OTLP over HTTP. It reads
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME (`mq` by default), OTEL_TRACES_SAMPLER and so on.
    Spans that it cannot send are dropped, and logged.
    """

    def __init__(self) -> None:
        """Raises StartupError where the extra is not installed, or its environment is wrong."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError as error:
            raise StartupError(
                f"--traces needs OpenTelemetry ({error}); pip install 'mq[tracing]'"
            ) from error
        is_named = "service.name" in OTELResourceDetector().detect().attributes
        resource = Resource.create({} if is_named else {"service.name": "mq"})
        # The daemon ends it, once no request is in flight.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    def spans(self) -> "Tracing":
        """Makes a span of each request."""
        from mq.http.traces import Traces as Spans  # noqa: PLC0415

        return Spans(self._provider)

    def end(self) -> None:
        """Sends the rest, blocking, as long as OTEL_EXPORTER_OTLP_TIMEOUT (10 s) at most."""
        self._provider.shutdown()
