"""A proxy before an mq, at moto's port, for moto's suite: it resets mq as moto is reset, says which
account asks, and has moto's account in URLs. `python -m harness.moto_shim URL`.
"""

import asyncio
import sys

from aiohttp import ClientSession, web

PORT = 5000
BODY_BYTES_MAX = 16 << 20
ACCOUNT = b"123456789012"
OURS = b"000000000000"
IDENTITY = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
    "<GetCallerIdentityResult><Arn>arn:aws:sts::123456789012:user/moto</Arn><UserId>moto</UserId>"
    "<Account>123456789012</Account></GetCallerIdentityResult><ResponseMetadata><RequestId>1"
    "</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
)
HOP = {"content-length", "transfer-encoding"}


async def serve(mq: str) -> None:
    async with ClientSession() as session:

        async def reset() -> None:
            async with session.get(f"{mq}/-/queues?count=1000") as answer:
                queues = (await answer.json())["queues"]
            for queue in queues:
                async with session.delete(f"{mq}/{queue['name']}"):
                    pass

        async def answer(request: web.Request) -> web.Response:
            body = await request.read()
            if request.path == "/moto-api/reset":
                await reset()
                return web.json_response({"status": "ok"})
            if b"Action=GetCallerIdentity" in body:
                return web.Response(text=IDENTITY, content_type="text/xml")
            kept = {name: each for name, each in request.headers.items() if name.lower() not in HOP}
            async with session.request(
                request.method, mq + request.path_qs, data=body, headers=kept
            ) as found:
                content = (await found.read()).replace(OURS, ACCOUNT)
                kept = {n: each for n, each in found.headers.items() if n.lower() not in HOP}
                return web.Response(status=found.status, body=content, headers=kept)

        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "localhost", PORT).start()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
