"""The doctor's kernel for NVIDIA GPUs: cubins, packed into text, and the PTX that they were made from.

In       an architecture
Out      an image with the kernel triple_plus_index(out, a): out[i] = 3 * a[i] + i, in blocks of 64
Changes  nothing
Next     kernels.py (who hands them out), hcq/nv/bundle.py (machine code and PTX in one image)
Source   PTX below, assembled by nvJitLink 13.5 for each architecture; a test compares their facts with a new one's

Each text is the cubin compressed with zlib and written in base 85, so that no compiler is needed to examine a GPU.
"""

from __future__ import annotations

import base64
import zlib

GROUP = 64

PTX = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry triple_plus_index(.param .u64 out, .param .u64 a)
{
  .reg .b32 %r<7>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [a];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd3, %r4, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r5, [%rd4];
  mad.lo.u32 %r6, %r5, 3, %r4;
  add.s64 %rd5, %rd1, %rd3;
  st.global.u32 [%rd5], %r6;
  ret;
}
"""


def image(arch: str) -> bytes:
    """Machine code and PTX of an architecture; b"" when there is none."""
    from hcq.nv.bundle import Bundle

    packed = CUBINS.get(arch)
    if packed is None:
        return b""
    cubin = zlib.decompress(base64.b85decode("".join(packed.split())))
    return Bundle(cubin, PTX.encode()).pack()


CUBINS: dict[str, str] = {
    "sm_80": """
        c-rk(%Wu<65Ff`*>z1|&4*?Yj7Su{0HQ`wvCt7GgL8Yl^RiW<^OyV?#_#t~!#TAHDNN__O_zO63<iLds;)D?5z>zaT2ysH<3SYimd!0C
        Ir+f$@Kw_lH?EH3SXS_T6$j#jB*@PfW%ivQ2o`L`&8umqVz?afI^i9DD5Mc^NsAblvI@rd_719c%tA}LKsT$=5WDOImSz{%OuW3fb?C7
        OB(^s;71FH?3#kOYE)S^|ZJ4MYXtBtlnk1nUG*lM{)XUQ}itQh!UT)(Z>zG+iduhf@|6<g6&-+>2|ZiJ4f)N0GNVpToOvQ2Da*Yf-52u
        cZSrtv3C;QyJRUpIl#VC&I-!XhLi_(>1%i{KYMd^mzX_wb<z{@%l-2)<RI_&@|d?BRnEe45~!(w(?XwkcbL#-P)tMB-hiGBvc;Z0-ZOw
        btAxdrjZwXpgxF#*}Ef(ggYO2avwBTBn!|{ldqDU-tvdE#+tO)98$8TjZSZX$#?9gf9@jL0B^~x~iMDn;{2FM$?sL6^xbh`9(B6pNBK`
        vVuycZfP}zE*`?BS#u^3Sx!}PRCMS_c5(tOQIS1z98TA@S{XU6gH;{rbqAxeTG0#@Efxy13&o|}#f5xfu9&;Dn46o)%>WBSGSqd&D5F_
        wTd-&(hkeVvb-sm82kC-igew%Va6@r^cG4NeE>)4E7f&2SnG!;Np7cEaAo6+6!yUR*8)XR2Yw3XBrWGV@3gJ5?ctmTlNO(sJq-~*E{j{
        g83)F+?;%FMALD{R^%R(B2NixQ9$&Xi&NR4)Cj>><T{L17PCY?@{jpL9!Hq*XWpq<-a`h6&|D)_~dBK$4|qb}<hC%ktACULSwYobLr$J
        -P<StZ(8R&bs@tBgH_$3|dm)mO#D-F|qv8^%}2%Kro8#3lNx6s);o!aE&DcMZXV5z<ezORWDz3dS1!qBo-FUx3>#NOVt1qv;_U|AN~-y
        +rt!f^$Uw<eh@IM0l2h?QZDf{s8?)N$~EQC{2a#5#Byb8+!P!F~fy#_-|%=o2NGne8cVk;0)Lvx-W$o|3@q-3)YXnpPku!8i-xNm~)U~
        ?*0Clq3^RN0%CfyhkrgkO?b>4g1cJm;eVC+Px14|{1-$1!!iE!T_ME8pXlq(pN}tx-X9xc{O6f}n!{yIekME+s<(hHbN(WW9ry+K12*x
        eIe&}!TSE6=5h><<Mol6wH@W+bBl^%_lQZiJ)^<34e?8=+9IC@)C{Lc!Vz=b|zBk@~2czLD
    """,
    "sm_86": """
        c-rk(&2Q665Ff`*>z1|&9|9^6EU1-0YQlGc6D>5Lpwd*dst}jdBu-<9KV)yJxB`(1>Af3zhxZq7;>dvu7sTlaJ-x#_az+RtPDosVuxqa
        qXYI5ggaC<=CbRR~nVs?O>__hAW-lfLVOj>C67UoR2+^=FnghO+mY{D6&VUG0FhVV}PSwFSR&J11AYDBqi%!)jHy~@6Sj`%%S$s<~DrQ
        G7)tSDU^&41i;4HQ^tELvMTHPsXMp<pN4SIArRmE1zJvvLK;b6tUN8|c!wYI5ES-nwTDOPMnSA7Q_P`VL1o>Hr=*osy4G|M)ziCxR@qa
        !FKteM8IFo9n(K|gK+qro<!!-PdhM)0#9-WS2IdiZbz|Hs3JBKT_$mm>I1f#L%Z{J4h?M(}BZZ%cRLHrb|Z5gLO|n-Yn4o66MCdb4>5<
        kougknA;mo0C1}A{bMm=}Hsi#~(oY&}yAyHuMW06aK#+U~VZtlb=QxOxq&ogikvN?<0JL@EyXMk<nG%wA~CjSTdTftf*kDUd}I~>G?cd
        sFxK~GIdL<DRl7=HqDwdfyi>Iild@qC$gs|&=M8d6Q|*PU8|Lm<2qQ?kzRK&DytREP|;$cFuPD(%3WQ^7v_q&Ym2$LncNJpFeF1=SBx^
        6rM3l&MsnD<{I$Wi(CHvuFiE&V0Sh-2=X)oeQS4F`IePKTB+8T!^7EwU@f(rPa~}SrOSM&o;JlWO_-$H2(zX!3SAs{h7K?=Uv_RSws?~
        P~+PXkJh%Sz%K^m03%3T)HAe<s&oR<7}6^Ybnr{<{q#N<aNKQQTZqHG<9<m62IUV(OQzv<_p#G2q2Pm1uX6pXs8W1R585lA$W{%J=0U#
        8&68qqGYg7fTIWgH+pHUeX7zA7f}_rvr3FuqDw{yLBom+1ecVBHlH-gu+?hTy>n=_lGX*8e;OV~u{%8<G0|TYx`Ykm#P2M$<zy{uQ@<d
        WrBh1(%5a&N~I~iSR51yWP;o{Q~;8lHlDpQJM<fBfNc>w)F5{XNC)#_-|)>o2M5He8KJi;0)Lux-W$o|3@q-3pS2_n4Q^t8i-xNm~)U~
        ?*0Clq5o!21jO`Y5C438n(&x81b4OA!~Z7ppW^3_`7eh2hhzNdyF!SGKhf8nKObKXy+5|Z_|G%{G>6Nad{1~FRBr(-bN(WW9ry+K12*y
        JIe&}!TSE6=5h><<Mol6wH@W+bBl^%_lQZiJ)^<34e?8=+9IC@)C{Lc!Vz=b|zBb-x%*Njq
    """,
    "sm_89": """
        c-rk(&1)N15TDhq?6qTCPFfP1mh`3A;DDum<ogsmvC^tImWhpVdr>#i%Gy@@!S0jMnwH2E+FQt>e?d+;=8#J+p{Ei`4?X5wN(ns$dTp!
        D+kGpo-maX4P?|snM)T(PX5P%cot^h|qquq{BT36Dgp`2?AVG{KL(v%vrSd6^EWvq@VF{*~Wx;EB)TP>W97WPMW3u8ktXdlimQD47wOg
        QH8dlxz>(v(5cMIWw>TOz}uHiKGiqmX)6~n6O?ViDqDX*cqdTq#L)wVpUS@iw1c~@^f)uyIjZ|zj-u4d|?g9vDY2wP8UHg{ajX#|?%+S
        I1L6V9;}v??`h>s8pmXW5|tZv&IT4x*FDGGr6@g#aH(;MW3tGJ*dX;1db__W)NC_)&@BV+s7j03T1_%ZMMD?#J!$kFtw22mLW4jQ16jx
        rzNwX93jierG`qhM~>rA$t+6sjzgFMf?dDQ2y$6FLE39g!hnt83kC|Dy@{3$z|Jhuup{aCh~FQtH@s?8&=-bP22VJ*jVz0sqN@s?S4|)
        B+Kh1xZJ8~q-vXv(bU+>Bh<E=-Xg)*scW82J~&l4vq-j>D4aS6ms&=%Mm*o6x=GBIM@dbu8<tKs%jMOL%2x5(Myb43DQ<5T*H(%vz{6m
        Mrm0yqvdV1B4vXaRXSsF2v#{;JDL9K<XMjW7n)hEPo!8uIgLr1;`~{M)5)$Ug`tf5~%yS*SW3TG43Q@mS-V4X9f|MgM{A~s9vRbSlzts
        ihSgcl`oapHi^FUpmod#uG4J!9@3CHJ@Fjif``s~*mlmBq}H<ws0U9Z3T;d#iOUFn@C(97vHy?m6}lfvT3A^(<xS)WhLBfmQZnRYhpW^
        De~9NgbS?Fuirz@Asf3FNscnA;0gIdgLq9=-$fyI29A0d`!}f6l?aFK2@FW{*$6?J1l`ZJW<O%)wlHR1Q{T{y&xBTOSnmO)9g~6D<B!z
        t_EF_#+1&q5dT3g5SvSLk?#A*u%X7`iqhjoHt2Yik%~(eVh&r@!#i$8&C0ngMZ^9J>uXap$|m8U?z56N-6$#c~TA>9RDQm*<u=mAHh^`
        P*TqQ(UhgX=T`*6_3RM;QhJ(jk2^$XwLHZC3+}%p?jQGGkNHog__KS3loEeoWH5g*z8brK97^&3nEOu)xGKm$k;h{77SXogFZ0-uUxeT
        08-GdgZ*YG{8vHAwq}<P#N#f?F4&HI(5E}0YW+TzNolO6}?g&zi)nPW4r${sMpcMU{H{QRM`QFX
    """,
    "sm_90": """
        c-rk2O^6#+_?wxxn`x6K*(%sYsZ-d67B<sJb!+jGbdyMAn=IY9h){-UGTDS?ewdjo8Cx-1WxZ98p1tVBn-@LEf*>Ludh{f+C-KyyhuZk
        w%u6zPGg&KAMd$}#zW4oq^YXp-zW2(T6`tdYA_Tz0H^9LZ4%2jz3<!D~77Oqy2vC3wv6P*T<Jzuz6R*b9(?e8oI!0>%vSGTKZ0yPIt*+
        5Fr+l+d`8|2EXqvjEx*)sSz?EIQYxOk6>h&F^YqYe%#CDF#>8Q5Wic_|<oBds-ZL7LQ^B9h+8g4$$*w%WFW1~i+s=eN>ty&$Qvux8fUC
        #=1B&gbSyQcAf-nz%xnkTt+(Qu0LW~rgnE0yhXgD@3_*(lcPwdzK3lUmO3l|~??w&hxhT9H+d+R^Mit+lOdx@@-Fj^^g!Sh#>ufQ5+si
        Z5S`$Zz=abVUAzFGmsi&%XRrM4sh{{A5JF=F5{2`D<8yIy=ofq=)}AOqW7-;|fL?Rzhn6xV}4tW>WjZ;du~8`@{31zYJ{F=Iqfp7kZie
        kPIp6g;yBA#CSgeP}`}NszqtTv@Lu;1@J7!vly>od>3Qa$l?FSw7nd@&~jZ}-POR@d!yQrid$9K=(kjfoQ!TyB@HCGrrC4WB-~P(>S)q
        Sm*iL0q#Z)!OPAqlzuRj`j_0_VF6n*8m0DW6YiLrVUf<kScFNbctM!^veyf2Sq+9};23M%-s?m}*iEZ5?nH>5pA0P8AWE-#w)-kq;z;X
        ww^Q4Q;sdlp?Il6KsFXft&6x2!HfnNo-&Mo+m{6$M5jNb`#F<6sML#L;5{scxGi03&FPH`NMW1*xt`Ok%P0r5Jfw>UuS$oE4hMgOE^`7
        8*_SwJr!xKC^qjuW0Afv|;bo=Z&|=fSxN&yfg(zl?$!+X(mhv_A=bMCl)tKE%|SMq65ih4s?p{R0r;DLjRL2kzeHM*blpO?Q-mWsfS(V
        U*MGtw(R(RgC#Gwomvy?A!Z1KY{~#5G}%^5qv=TPt&k+Cz0?Y@b@xs^dfxq4(9Gs{dXBy9q_)MhkFV5@gnSdJn!2tpH0D08taj-M@0X9
        9aaVja-<=_WB!Ma;J^b!?k=>PO_BPqd6U~+fZsCky7$mOZ==!s0vu-Gj29j*|9k$Q0_VTOQ7DAoSJplZ$vOVFso~*Y_&-DMtVn(u^Z|3
        PjqkQIq4|P~@z2w?>%j5(FVMG(E#njF?=lW3W*$le`!!>kq9c+-`2|`#>t79s6`6Oa|9Dmr=H$PQ@gT;3i}9aVf1l<rFmjjrw?g^TG5%
        y;<6`pv#C$(nzZjb9k}>|jQ~xX@7a979#$@Xk6SI9HP&>ANzNS5KmGPITzZB|<xbMF~{n?3lcw%-&6lm@tW4B0q<1ih6K0jxu80zDNP@
        OFNBFs|O@9*aO6U3ScHU
    """,
    "sm_100": """
        c-rk4TWB0r^vq))NjAGl8f`<hPD6@8l5J{Zn|vsnHmRnh*)<6vh_Fnvv&oX3-DPJs-Ni~bEw<2)8vOCAR7AlKL51R{L<K1#n9u$t1V6+
        NDJU4Ey54)|&hE^enIr~<e&oQ-x#!$-?s?pE=bp{Av55;j$BhKR03N;q4jS;@Ap=i^>3RzMF&F|7V(=7}jB1OTUex8wXlCMyN^nZKTv|
        w`i?XUfG?&+vXl^;GFJ*G+e1o1ZQF=LApUmggf~?nhQN5TcWR+wgThfx5TuLb$QgSxCP?QUc5G^WM*=|l(%DR_cKBwt&P9N}CSC!&?Jq
        DAu$3mG_pRJ6YHnux%a-9JXxdK`Ah-FW(Yu>#Q<#fh$+C8|UqAA5?B{i)oYBZltYl=RwYr4Gw*PsAC2fv;0{SN+d!Vfw4!-Ow7_!kJj*
        }<Pdqob{{PnBMVG#byM5u<!_$7^JtR>wXy1U;5H2IR+8j3c3yYPA=FwUugbkW3AkK95|OK8S<(54IelT0kPckH&fcU~+bRbbLfQpDz~B
        JvN{djbmtBLgQ^TGP!<qK>1>&A6@+Zj4CfEkXybuJ|m4J#^HP^B}@4BWwNrK$>$_JpU-N25-Lwc))eW~>F7&+(kw>N(`VsaDU(e}T1C?
        pRZ>fuE~S)oCZ|X<@%Y4aa&~NLdOSXv9GjaNn;ab*1!@L)sH$=<B~4)2cmZ3|Xe_Hc#Ddd+mf#FM4=CtmS^K}8?w5=6i;|`$PYn!6{qv
        GU{KVhOp9R*>1l+<$)E=x?sCd$t<4O}d8hpM94YU!@b0D;GoDkqR9_=T#1fhw_2;rD0J|n_9mcNMTB$7K?10jLr4qIyd(eXOXVb3sqRy
        2G`i>N-4ZdV(K%|YUKRY3DIBAE+I9PnzRPBH$Q;=d?<jPPjveE^r+w|}_)7FUA}n$WEXbX6=DIvR#=E7aNvG`hp^=@qdCOC+H|$c2%9p
        au`A{s5-=8f?*oe~xJ+ze(w>F!Wpv1jvs3od`U54o;N$fJoxH6M!G$uu|c9a<{vVh2X;|S{KQ>h}R#y3q9okJ|+n8i2gnfH!C3GniRXx
        M+5nPsZzhS0{jwzS1XT6{%W-w0<1;gNW~KT6F?up0UW@S5BuwfIz9TKh(|xv;n5E@_DL}P5HS6ad*8$D*!K*2#BACU+wh+lXZAhfBl<A
        y@vX&gDAxYhZ|EBm+`ilW(HD0+Rk;7cZ-2}QA3xvXKm6<P<|n<kg5MRsTz9;)dwoY=MpoS3(U5W0<jY(=iRLY0^ES!u2uX5-=78fd?Qi
        ~*&?}rs=rE#joe12pP5x_+Lx}GV`?p~V(Kk>p%iC<@C$zCHaO^sHHiyD5ZbPh{%(-U#XU+P1G2#1fD%}ZY=Y5ZJ%3GnuLw|z`-h-X>57
        92i(S=jyLrW*rM6-tB2*pQT_QWtpom$+*elP8ESvS_GzRoDHzio!7evH|Ake-Z0X&?2S)ql-E1;>|w>YKM)@UZ_n8aG|^%f3c@JNf@6w
        I5^nANcI~6X<PW^{*H?b=VL3?eVkzo9Flr<+1jA{q}Pfs2qF#@6$77Z+F#i|1~F2nJOdq8Pz}M2*5zAg8gg3#{Z)c1CGDV%3p1vb;NY?
        tp6L0nzZRBLhgmZ*6;7++v2pp7P8k**yH?toS`3M^narIS&M$Bi+(TCzwKf_(P}^cu*dnog7mMu*e|r&^Mv&yF8P~7`cJ#%pXz^O(f6}
        LlqXvL^Txs^gM*fH*sq??QlDP`eK0X=ug+k=tWy)4V*da%mnoz
    """,
    "sm_120": """
        c-rk4TWB0r^vq))O*Xqp8f`<hPD6@8l4;t;Hu+FCZBk81vuhGU5Mh~SXOks6yUWgOx{H-=T5O>oHTdIKsfdCf1r>^)5*4I~U_Seo5d08
        7q@ZAs>U!^;JG(P?c9Iwr`jG>7&zy75x#w}uoqJ}ljgDX7Ic_)zCh+hTa8QT$51M!~Oy^7BkHR2`5QS&3q^vLKM!`@nqbCcOHG-4s<>G
        uIRZuh)<ZRAR<?NDdET*%mT%DdPQhG_QJ<R2_ykgXNvQbFqGioBADe8%IHmR0ODJ7GcFDUs1kPB)?ahfyKlHsM7%j$-bHTpf~HMKBTi@
        ~Cuu~4SnXFFrNg`JLDTz3FOE>9*sV%Zh!n0K#4xt+0`ZX8@e)z!k1nw-*9P0poKx@z?Am~L;tH7J13#cv~gzl(p2@Ix;C5aEk1{sqEsa
        `C6pXm72rQ=x|;g~sz}L@D1|@fumD#kEcqLAUK01M=f4#*xr+rP2ez>T;zgNFGg@UXNT@K8OSO2U`wNEg%s;Kw~WcFflVWGBzxo&lU3M
        9GlRA#!)mbq45qH>1-d`pj@HchYo&UT2tm#$Sz$Ro0f*-V{pEhR3v=*(iz1_=dzNK%VqRl36-a+=&E$`wES|fG=q_R`YfC)rZY)NFYAV
        ?Nm@}iq@<ckXH{uB78{>R%#2P>jm0JsqqEba6C<M|K+PZzHBHGTrEx49%VSGAjb&w<Sa2H96r7>^0ePdO=>NCVeM(_&LDIFv$y5DO-<%
        {7Kk@tWXMy!I4!7_YwFPSxDxNT(aixjvbv}Op4YUx?b0D;EoDkqR9<3)f2hl1f2;rzGJ}1H&mcNMT1d=;a1px_&hitX}_*jkRuxFS)E1
        JHfL{y(hx3d+*rXcaVBB19pW(5n29PnDbPBH$Q;=d?<g78S~et-t2Z|`vZZLSLIG@+Xj=q%d~v>b+S%hcL&G`hlY|B6_JMUv1UWWz{5P
        =!ZSzaP_l6*g(YKgTqZ-=Oqn7`m?p0%S%0P6Qsl0LM#wKqPV93BV6AST6HC$xP?b5PT$~d6CSEc>dvg&|M1PZGr%g=<j22vkW4xNwE{X
        G?4$7%C%D~z%LPat^9=KuUfq!z-j~zmu<m61@u1b!#+Iyu(y7w!=oRHc=SW<9{o^#ojB7E0n-mP?t8dx`<?-hm@QjkEB=XcR^KB&rWey
        L?^=9^V(ou@hrTJn?Ymtce{r`%g9k7D_Q$O7$&1bYL%$AfeA;s>_+9?XHP=16+k5mCWTnwP8Z!5qyqPN}&~vlcv_-NzOp;uuIpBCq`<w
        nG^fD(BI*e#sCjvL*kpG(F5aPSS{w<h9^bOR@@($bh3a!rz96L|0&B5@gEr_;}XRZnVtlGa9<G%l<(%oQn-uF1Syd9c7^w+82J=k9VAn
        kHoT{vYvvUNfSXx1<sruayMH8IRmrxtdw-$T1x){RxFZ!ik%x6L5ck1|US(4CPe?W4Z4`mdWP?|KtZed}}!9`@fr<7NZ>lCK`$cK*Lb?
        ME5@hdyWi1bSLn{VQfpUG{^1XZ)=H);_*Vd93{&zjL1jD#z~s2Xs%_(_Qg9zvcugQ(@#jqx$Du0hnk-aK0_r_<uBG!11@*`76z|j+joK
        ^?$uylMelOsBvMi_4_+{x47-EhMe^i_Sk<PXX-~8{hz3Q#-`uVK)(m+-)>+(-s0T<u*d$tiuA8Hu%B;n<_YUZ8su*l=|9^j|5X1Qo4%h
        FqCC;|&l?LH3=Z1%VXt~VTYY-{`(R<#UX8(kRi_rV#Qp)4WGVR
    """,
}
